# SPDX-License-Identifier: BSL-1.0
# Implements PENSTOCK_FETCH_BOOST if Boost is not found: downloads the headers in Boost's release
# archive (about 140 MB, nothing to build). The archive contains all headers in one folder, so this
# file need not list the dependencies of Boost.Lockfree. PENSTOCK_BOOST_URL sets another location,
# such as a mirror or a file. -DFETCHCONTENT_SOURCE_DIR_PENSTOCK_BOOST=DIR uses an unpacked archive.
include(FetchContent)
set(PENSTOCK_BOOST_URL
    "https://archives.boost.io/release/1.84.0/source/boost_1_84_0.tar.gz"
    CACHE STRING "Boost's release archive, fetched when no Boost >= 1.74 is found"
)
mark_as_advanced(PENSTOCK_BOOST_URL)
message(STATUS "penstock: no Boost >= 1.74 found, fetching ${PENSTOCK_BOOST_URL}")
# SOURCE_SUBDIR names a folder without a CMakeLists.txt, so that CMake only unpacks the archive.
FetchContent_Declare(penstock_boost URL "${PENSTOCK_BOOST_URL}" SOURCE_SUBDIR boost)
FetchContent_MakeAvailable(penstock_boost)
if(NOT EXISTS "${penstock_boost_SOURCE_DIR}/boost/lockfree/queue.hpp")
  message(FATAL_ERROR "penstock: no boost/lockfree/queue.hpp in ${penstock_boost_SOURCE_DIR}")
endif()
# An imported target, so that an installed penstock refers to Boost::headers and its users find
# their own Boost.
add_library(Boost::headers INTERFACE IMPORTED GLOBAL)
target_include_directories(Boost::headers INTERFACE "${penstock_boost_SOURCE_DIR}")
