# SPDX-License-Identifier: BSL-1.0
# Install rules and the CMake package. find_package(penstock [COMPONENTS ...]) accepts the
# components that penstock-config.cmake.in lists.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(penstock_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/penstock")

# The core and the extensions without library dependencies are always installed.
list(TRANSFORM penstock_plain_extensions PREPEND penstock_ OUTPUT_VARIABLE penstock_plain_targets)
install(TARGETS penstock ${penstock_plain_targets} EXPORT penstock-targets FILE_SET HEADERS)
install(EXPORT penstock-targets NAMESPACE penstock:: DESTINATION "${penstock_package_dir}")
set(penstock_components ${penstock_extensions})
list(REMOVE_ITEM penstock_components ${penstock_plain_extensions})
foreach(component IN LISTS penstock_components)
  install(TARGETS penstock_${component} EXPORT penstock-${component}-targets FILE_SET HEADERS)
  install(EXPORT penstock-${component}-targets NAMESPACE penstock::
          DESTINATION "${penstock_package_dir}"
  )
endforeach()

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/penstock-config.cmake.in"
  "${CMAKE_CURRENT_BINARY_DIR}/penstock-config.cmake"
  INSTALL_DESTINATION "${penstock_package_dir}"
)
# Before version 1.0, a minor version may break its users. The library is header-only, so the word
# size does not matter.
write_basic_package_version_file(
  "${CMAKE_CURRENT_BINARY_DIR}/penstock-config-version.cmake"
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT
)
install(
  FILES "${CMAKE_CURRENT_BINARY_DIR}/penstock-config.cmake"
        "${CMAKE_CURRENT_BINARY_DIR}/penstock-config-version.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_arrow.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_boost.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_compiled.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_cuda.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_cuda_dialect.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_hdf5.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_libdeflate.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_libraries.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_nvimgcodec.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_nvtx.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_sndfile.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_torch.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_webp.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_xxhash.cmake"
        "${CMAKE_CURRENT_LIST_DIR}/penstock_zstd.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/penstock.cpp"
        "${PROJECT_SOURCE_DIR}/cmake/penstock_cuda.cpp"
  DESTINATION "${penstock_package_dir}"
)

# Installs the pkg-config file in share, because it is the same for all architectures. The file
# locates the headers relative to itself, so the prefix can be moved.
get_target_property(penstock_pc_definition penstock INTERFACE_COMPILE_DEFINITIONS)
if(penstock_pc_definition MATCHES "^PENSTOCK_CHECKED=")
  string(PREPEND penstock_pc_definition " -D")
else()  # defined only in Debug builds or never
  set(penstock_pc_definition "")
endif()
configure_file(
  "${CMAKE_CURRENT_LIST_DIR}/penstock.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/penstock.pc" @ONLY
)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/penstock.pc"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/pkgconfig"
)
