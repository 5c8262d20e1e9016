# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libhdf5 if the C library of HDF5 1.10.5 or newer is found. Installed
# next to penstock-config.cmake, so that this project and its users search in the same way.
#
# CMake's own module for HDF5 needs the language C. This file therefore searches for the CMake
# package of HDF5, and then for the header and the library, in the folders of Debian's serial build
# too. Setting CMAKE_DISABLE_FIND_PACKAGE_HDF5 ignores an installed libhdf5.
if(NOT CMAKE_DISABLE_FIND_PACKAGE_HDF5 AND NOT TARGET penstock::libhdf5)
  find_package(HDF5 1.10.5 CONFIG QUIET)
  set(penstock_hdf5_link)
  foreach(target IN ITEMS hdf5::hdf5-shared hdf5::hdf5-static HDF5::C hdf5::hdf5)
    if(TARGET ${target} AND NOT penstock_hdf5_link)
      set(penstock_hdf5_link ${target})
    endif()
  endforeach()
  if(NOT penstock_hdf5_link)
    find_path(penstock_hdf5_include_dir H5public.h HINTS "${HDF5_ROOT}"
              PATH_SUFFIXES include/hdf5/serial hdf5/serial include
    )
    find_library(penstock_hdf5_library NAMES hdf5_serial hdf5 HINTS "${HDF5_ROOT}"
                 PATH_SUFFIXES hdf5/serial lib64 lib
    )
    mark_as_advanced(penstock_hdf5_include_dir penstock_hdf5_library)
    if(penstock_hdf5_include_dir AND penstock_hdf5_library)
      file(STRINGS "${penstock_hdf5_include_dir}/H5public.h" penstock_hdf5_version
           REGEX "define H5_VERS_(MAJOR|MINOR|RELEASE)[ \t]+[0-9]"
      )
      list(TRANSFORM penstock_hdf5_version REPLACE "^.*H5_VERS_[A-Z]+[ \t]+([0-9]+).*$" "\\1")
      list(JOIN penstock_hdf5_version "." penstock_hdf5_version)
      if(penstock_hdf5_version VERSION_LESS 1.10.5)
        message(VERBOSE "penstock: libhdf5 in ${penstock_hdf5_include_dir} is older than 1.10.5")
      else()
        set(penstock_hdf5_link "${penstock_hdf5_library}")
      endif()
    endif()
  endif()
  if(penstock_hdf5_link)
    add_library(penstock::libhdf5 INTERFACE IMPORTED GLOBAL)
    target_link_libraries(penstock::libhdf5 INTERFACE "${penstock_hdf5_link}")
    if(penstock_hdf5_include_dir)
      target_include_directories(penstock::libhdf5 SYSTEM INTERFACE "${penstock_hdf5_include_dir}")
    endif()
  endif()
endif()
