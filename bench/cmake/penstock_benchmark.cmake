# SPDX-License-Identifier: BSL-1.0
# Finds an installed Google Benchmark or fetches one. Defines benchmark::benchmark_main, except if
# no copy is installed and FETCHCONTENT_FULLY_DISCONNECTED forbids fetching.
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  include(FetchContent)
  if(NOT FETCHCONTENT_FULLY_DISCONNECTED)
    message(STATUS "penstock: no Google Benchmark found, fetching it (Debian: libbenchmark-dev)")
  endif()
  set(BENCHMARK_ENABLE_TESTING OFF CACHE INTERNAL "")
  set(BENCHMARK_ENABLE_INSTALL OFF CACHE INTERNAL "")
  # SYSTEM must come first, because CMake 3.25 would parse it as a second URL after the URL.
  FetchContent_Declare(
    benchmark SYSTEM URL https://github.com/google/benchmark/archive/refs/tags/v1.8.3.tar.gz
  )
  FetchContent_MakeAvailable(benchmark)
endif()
