# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libxxhash if libxxhash 0.8 or newer is found. Installed next to
# penstock-config.cmake, so that this project and its users search in the same way.
#
# Distributions may omit its CMake package. This file then searches for the header and the library.
# Setting CMAKE_DISABLE_FIND_PACKAGE_xxHash ignores an installed libxxhash.
if(NOT CMAKE_DISABLE_FIND_PACKAGE_xxHash AND NOT TARGET penstock::libxxhash)
  find_package(xxHash 0.8 CONFIG QUIET)
  set(penstock_xxhash_link)
  if(TARGET xxHash::xxhash)
    set(penstock_xxhash_link xxHash::xxhash)
  else()
    find_path(penstock_xxhash_include_dir xxhash.h HINTS "${xxHash_ROOT}" PATH_SUFFIXES include)
    find_library(penstock_xxhash_library xxhash HINTS "${xxHash_ROOT}" PATH_SUFFIXES lib64 lib)
    mark_as_advanced(penstock_xxhash_include_dir penstock_xxhash_library)
    if(penstock_xxhash_include_dir AND penstock_xxhash_library)
      file(STRINGS "${penstock_xxhash_include_dir}/xxhash.h" penstock_xxhash_version
           REGEX "define XXH_VERSION_(MAJOR|MINOR) "
      )
      string(REGEX MATCHALL "[0-9]+" penstock_xxhash_version "${penstock_xxhash_version}")
      list(JOIN penstock_xxhash_version "." penstock_xxhash_version)
      if(penstock_xxhash_version VERSION_LESS 0.8)
        message(VERBOSE "penstock: libxxhash in ${penstock_xxhash_include_dir} is older than 0.8")
      else()
        set(penstock_xxhash_link "${penstock_xxhash_library}")
      endif()
    endif()
  endif()
  if(penstock_xxhash_link)
    add_library(penstock::libxxhash INTERFACE IMPORTED GLOBAL)
    target_link_libraries(penstock::libxxhash INTERFACE "${penstock_xxhash_link}")
    if(penstock_xxhash_include_dir)
      target_include_directories(
        penstock::libxxhash SYSTEM INTERFACE "${penstock_xxhash_include_dir}"
      )
    endif()
  endif()
endif()
