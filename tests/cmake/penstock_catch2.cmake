# SPDX-License-Identifier: BSL-1.0
# Finds Catch2 2.13 or 3, or fetches it if it is not installed. Provides Catch2::Catch2 and
# catch_discover_tests. Sets penstock_has_catch2 to FALSE if Catch2 is not installed and
# FETCHCONTENT_FULLY_DISCONNECTED forbids fetching it.
set(penstock_has_catch2 TRUE)
find_package(Catch2 QUIET)
if(NOT Catch2_FOUND)
  include(FetchContent)
  if(NOT FETCHCONTENT_FULLY_DISCONNECTED)
    message(STATUS "penstock: no Catch2 found, fetching it for the tests (Debian: catch2)")
  endif()
  # SYSTEM comes first, because CMake 3.25 would parse it as a second URL after the URL.
  FetchContent_Declare(
    Catch2 SYSTEM URL https://github.com/catchorg/Catch2/archive/refs/tags/v3.5.4.tar.gz
  )
  FetchContent_MakeAvailable(Catch2)
  if(TARGET Catch2::Catch2)
    list(APPEND CMAKE_MODULE_PATH "${catch2_SOURCE_DIR}/extras")
  else()
    set(penstock_has_catch2 FALSE)
  endif()
endif()
if(penstock_has_catch2)
  include(Catch)
endif()
