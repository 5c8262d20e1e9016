# SPDX-License-Identifier: BSL-1.0
# An overlay port that packages the source tree that contains it.
#   vcpkg install "penstock[cache,gzip,http,jpeg,json-lines,lockfree,mds,png,zstd]" --overlay-ports=<this repository>/packaging/vcpkg
# For a registry, replace the next line by vcpkg_from_github or vcpkg_from_git.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../.." ABSOLUTE)

set(VCPKG_BUILD_TYPE release) # headers only: a debug build would install the same files

vcpkg_check_features(
  OUT_FEATURE_OPTIONS options
  FEATURES
    lockfree PENSTOCK_LOCKFREE
  INVERTED_FEATURES
    cache CMAKE_DISABLE_FIND_PACKAGE_xxHash
    gzip CMAKE_DISABLE_FIND_PACKAGE_ZLIB
    http CMAKE_DISABLE_FIND_PACKAGE_CURL
    jpeg CMAKE_DISABLE_FIND_PACKAGE_JPEG
    json-lines CMAKE_DISABLE_FIND_PACKAGE_simdjson
    mds CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json
    png CMAKE_DISABLE_FIND_PACKAGE_PNG
    zstd CMAKE_DISABLE_FIND_PACKAGE_zstd
)

# penstock_cuda.cmake makes penstock::cuda and penstock::compiled_cuda in the project that uses
# them. So that feature sets nothing here.
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${options}
    -DPENSTOCK_BUILD_TESTS=OFF
    -DPENSTOCK_BUILD_BENCH=OFF
    -DPENSTOCK_BUILD_EXAMPLES=OFF
    -DCMAKE_DISABLE_FIND_PACKAGE_HDF5=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_SndFile=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_WebP=ON
    -DPENSTOCK_NVIMGCODEC=OFF
    -DPENSTOCK_PARQUET=OFF
    -DPENSTOCK_TORCH=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/penstock)
vcpkg_fixup_pkgconfig()

# The folder contained only the CMake package, which was moved.
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
