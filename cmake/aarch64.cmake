# SPDX-License-Identifier: BSL-1.0
# A toolchain file for 64-bit Arm. Debian's cross compiler (g++-aarch64-linux-gnu) compiles, and
# qemu-aarch64 (qemu-user) runs the programs. Speed under qemu is meaningless, and the memory
# ordering is that of the host machine.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
# Disables a warning that other g++ versions pass some empty classes differently. No library
# compiled by other versions is linked here.
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)
# Otherwise, pkg-config would return the host's libraries, and FindCURL would use them and their
# headers. FindOpenSSL of CMake 3.25 fails without pkg-config.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig)
