# SPDX-License-Identifier: BSL-1.0
# Google Benchmark: an installed one, else fetched. Gives benchmark::benchmark_main, or no such
# target where there is none and FETCHCONTENT_FULLY_DISCONNECTED forbids to fetch it.
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  include(FetchContent)
  if(NOT FETCHCONTENT_FULLY_DISCONNECTED)
    message(STATUS "penstock: no Google Benchmark found, fetching it (Debian: libbenchmark-dev)")
  endif()
  set(BENCHMARK_ENABLE_TESTING OFF CACHE INTERNAL "")
  set(BENCHMARK_ENABLE_INSTALL OFF CACHE INTERNAL "")
  # SYSTEM goes first: after the URL, CMake 3.25 takes it for a second one.
  FetchContent_Declare(
    benchmark SYSTEM URL https://github.com/google/benchmark/archive/refs/tags/v1.8.3.tar.gz
  )
  FetchContent_MakeAvailable(benchmark)
endif()
