# SPDX-License-Identifier: BSL-1.0
# The benchmarks of this folder, compiled as C++ for the fake of the CUDA runtime, for the tests.
# The programs make all their calls, but their numbers have no meaning.
# penstock_cuda_<name>_bench_on_fake. The environment variable PENSTOCK_FAIL_CALL=<function>:<k>
# makes the k-th call of a function fail once.
foreach(name IN ITEMS transfer graph_wait)
  set(target penstock_cuda_${name}_bench_on_fake)
  add_executable(${target})
  fake_cuda_translate(${target} "${CMAKE_CURRENT_LIST_DIR}/${name}_bench.cu" ${name}_bench.cpp)
  target_sources(
    ${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/translated/${target}/${name}_bench.cpp"
  )
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_LIST_DIR}")
  target_compile_definitions(${target} PRIVATE PENSTOCK_BENCH_ON_FAKE)
  target_link_libraries(${target} PRIVATE penstock_program)
endforeach()
