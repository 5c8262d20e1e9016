# SPDX-License-Identifier: BSL-1.0
# A toolchain file: 64-bit Arm by Debian's cross compiler (g++-aarch64-linux-gnu), programs run by
# qemu-aarch64 (qemu-user). It says nothing of speed, and orders memory as the machine below does.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
# Another g++ passed some empty classes otherwise: nothing here is linked to what that compiled.
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)
# Else pkg-config names the libraries of the machine below, and FindCURL takes them, headers and
# all. Without pkg-config FindOpenSSL of CMake 3.25 calls what is not there.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig)
