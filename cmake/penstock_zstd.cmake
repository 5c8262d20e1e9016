# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libzstd if libzstd 1.4 or newer is found. Installed next to
# penstock-config.cmake, so that this project and its users search in the same way.
#
# The target name in its CMake package differs between versions, and distributions may omit the
# package. This file then searches for the header and the library. Setting
# CMAKE_DISABLE_FIND_PACKAGE_zstd ignores an installed libzstd.

# penstock_find_zstd(): sets the folder of the header and the library in the cache.
function(penstock_find_zstd)
  find_path(penstock_zstd_include_dir zstd.h HINTS "${zstd_ROOT}" PATH_SUFFIXES include)
  find_library(penstock_zstd_library zstd HINTS "${zstd_ROOT}" PATH_SUFFIXES lib64 lib)
  mark_as_advanced(penstock_zstd_include_dir penstock_zstd_library)
endfunction()

if(NOT CMAKE_DISABLE_FIND_PACKAGE_zstd AND NOT TARGET penstock::libzstd)
  find_package(zstd 1.4 CONFIG QUIET)
  set(penstock_zstd_link)
  foreach(target IN ITEMS zstd::libzstd zstd::libzstd_shared zstd::libzstd_static)
    if(TARGET ${target} AND NOT penstock_zstd_link)
      set(penstock_zstd_link ${target})
    endif()
  endforeach()
  if(NOT penstock_zstd_link)
    penstock_find_zstd()
    if(penstock_zstd_include_dir AND penstock_zstd_library)
      file(STRINGS "${penstock_zstd_include_dir}/zstd.h" penstock_zstd_version
           REGEX "define ZSTD_VERSION_(MAJOR|MINOR) "
      )
      string(REGEX MATCHALL "[0-9]+" penstock_zstd_version "${penstock_zstd_version}")
      list(JOIN penstock_zstd_version "." penstock_zstd_version)
      if(penstock_zstd_version VERSION_LESS 1.4)
        message(VERBOSE "penstock: libzstd in ${penstock_zstd_include_dir} is older than 1.4")
      else()
        set(penstock_zstd_link "${penstock_zstd_library}")
      endif()
    endif()
  endif()
  if(penstock_zstd_link)
    add_library(penstock::libzstd INTERFACE IMPORTED GLOBAL)
    target_link_libraries(penstock::libzstd INTERFACE "${penstock_zstd_link}")
    if(penstock_zstd_include_dir)
      target_include_directories(penstock::libzstd SYSTEM INTERFACE "${penstock_zstd_include_dir}")
    endif()
  endif()
endif()
