# SPDX-License-Identifier: BSL-1.0
# Defines the target Boost::headers if Boost 1.74 or newer is found. Installed next to
# penstock-config.cmake, so that this project and its users search in the same way.
#
# The search covers CMake packages of Boost first, and then folders that contain only the headers
# (an unpacked archive). This file implements the second step itself, because CMake 3.30 removed the
# FindBoost module. Hints: CMAKE_PREFIX_PATH, Boost_DIR, Boost_ROOT or BOOST_ROOT (variable or
# environment).
if(NOT TARGET Boost::headers)
  find_package(Boost 1.74 CONFIG QUIET HINTS "${BOOST_ROOT}" "$ENV{BOOST_ROOT}")
endif()
if(NOT TARGET Boost::headers)
  find_path(
    penstock_boost_include_dir
    boost/lockfree/queue.hpp
    HINTS "${Boost_ROOT}" "${BOOST_ROOT}" "$ENV{Boost_ROOT}" "$ENV{BOOST_ROOT}"
    PATH_SUFFIXES include
  )
  mark_as_advanced(penstock_boost_include_dir)
  if(penstock_boost_include_dir)
    file(
      STRINGS "${penstock_boost_include_dir}/boost/version.hpp" penstock_boost_version
      REGEX "#define BOOST_VERSION [0-9]+"
    )
    string(REGEX MATCH "[0-9]+" penstock_boost_version "${penstock_boost_version}")
    if(penstock_boost_version LESS 107400)
      message(
        STATUS "penstock: Boost in ${penstock_boost_include_dir} is older than 1.74, not used"
      )
      unset(penstock_boost_include_dir CACHE)
    else()
      add_library(Boost::headers INTERFACE IMPORTED)
      target_include_directories(Boost::headers INTERFACE "${penstock_boost_include_dir}")
    endif()
  endif()
endif()
