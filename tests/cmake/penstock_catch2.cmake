# SPDX-License-Identifier: BSL-1.0
# Catch2 2.13 or 3: an installed one, else fetched. Gives Catch2::Catch2 and catch_discover_tests,
# and penstock_has_catch2: FALSE where there is none and FETCHCONTENT_FULLY_DISCONNECTED forbids to
# fetch it.
set(penstock_has_catch2 TRUE)
find_package(Catch2 QUIET)
if(NOT Catch2_FOUND)
  include(FetchContent)
  if(NOT FETCHCONTENT_FULLY_DISCONNECTED)
    message(STATUS "penstock: no Catch2 found, fetching it for the tests (Debian: catch2)")
  endif()
  # SYSTEM goes first: after the URL, CMake 3.25 takes it for a second one.
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
