# Catch2 2.13 or 3: an installed one, else fetched. Gives Catch2::Catch2 and catch_discover_tests.
find_package(Catch2 QUIET)
if(NOT Catch2_FOUND)
  include(FetchContent)
  message(STATUS "penstock: no Catch2 found, fetching it for the tests (Debian: catch2)")
  FetchContent_Declare(
    Catch2
    URL https://github.com/catchorg/Catch2/archive/refs/tags/v3.5.4.tar.gz
    SYSTEM
  )
  FetchContent_MakeAvailable(Catch2)
  list(APPEND CMAKE_MODULE_PATH "${catch2_SOURCE_DIR}/extras")
endif()
include(Catch)
