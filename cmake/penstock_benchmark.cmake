# Google Benchmark: an installed one, else fetched. Gives benchmark::benchmark_main.
find_package(benchmark QUIET)
if(NOT benchmark_FOUND)
  include(FetchContent)
  message(STATUS "penstock: no Google Benchmark found, fetching it (Debian: libbenchmark-dev)")
  set(BENCHMARK_ENABLE_TESTING OFF CACHE INTERNAL "")
  set(BENCHMARK_ENABLE_INSTALL OFF CACHE INTERNAL "")
  FetchContent_Declare(
    benchmark
    URL https://github.com/google/benchmark/archive/refs/tags/v1.8.3.tar.gz
    SYSTEM
  )
  FetchContent_MakeAvailable(benchmark)
endif()
