# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libsndfile if libsndfile is found. Installed next to
# penstock-config.cmake, so that this project and its users search in the same way.
#
# Debian's package has no CMake package. This file then searches for the header and the library.
# Setting CMAKE_DISABLE_FIND_PACKAGE_SndFile ignores an installed libsndfile.
if(NOT CMAKE_DISABLE_FIND_PACKAGE_SndFile AND NOT TARGET penstock::libsndfile)
  find_package(SndFile CONFIG QUIET)
  set(penstock_sndfile_link)
  if(TARGET SndFile::sndfile)
    set(penstock_sndfile_link SndFile::sndfile)
  else()
    find_path(penstock_sndfile_include_dir sndfile.h HINTS "${SndFile_ROOT}" PATH_SUFFIXES include)
    find_library(penstock_sndfile_library sndfile HINTS "${SndFile_ROOT}" PATH_SUFFIXES lib64 lib)
    mark_as_advanced(penstock_sndfile_include_dir penstock_sndfile_library)
    if(penstock_sndfile_include_dir AND penstock_sndfile_library)
      set(penstock_sndfile_link "${penstock_sndfile_library}")
    endif()
  endif()
  if(penstock_sndfile_link)
    add_library(penstock::libsndfile INTERFACE IMPORTED GLOBAL)
    target_link_libraries(penstock::libsndfile INTERFACE "${penstock_sndfile_link}")
    if(penstock_sndfile_include_dir)
      target_include_directories(
        penstock::libsndfile SYSTEM INTERFACE "${penstock_sndfile_include_dir}"
      )
    endif()
  endif()
endif()
