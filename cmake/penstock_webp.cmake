# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libwebp if libwebp is found. Installed next to
# penstock-config.cmake, so that this project and its users search in the same way.
#
# Debian's package has no CMake package. This file then searches for the header and the library.
# Setting CMAKE_DISABLE_FIND_PACKAGE_WebP ignores an installed libwebp.
if(NOT CMAKE_DISABLE_FIND_PACKAGE_WebP AND NOT TARGET penstock::libwebp)
  find_package(WebP CONFIG QUIET)
  set(penstock_webp_link)
  if(TARGET WebP::webp)
    set(penstock_webp_link WebP::webp)
  else()
    find_path(penstock_webp_include_dir webp/decode.h HINTS "${WebP_ROOT}" PATH_SUFFIXES include)
    find_library(penstock_webp_library webp HINTS "${WebP_ROOT}" PATH_SUFFIXES lib64 lib)
    mark_as_advanced(penstock_webp_include_dir penstock_webp_library)
    if(penstock_webp_include_dir AND penstock_webp_library)
      set(penstock_webp_link "${penstock_webp_library}")
    endif()
  endif()
  if(penstock_webp_link)
    add_library(penstock::libwebp INTERFACE IMPORTED GLOBAL)
    target_link_libraries(penstock::libwebp INTERFACE "${penstock_webp_link}")
    if(penstock_webp_include_dir)
      target_include_directories(
        penstock::libwebp SYSTEM INTERFACE "${penstock_webp_include_dir}"
      )
    endif()
  endif()
endif()
