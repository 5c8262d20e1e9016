# SPDX-License-Identifier: BSL-1.0
# The test package/cuda: projects with CMake's language CUDA use penstock through find_package and
# FetchContent. Their .cu and .cpp files must be compiled as C++20, even if the project requires
# C++17.
#
#   cmake -Dsource=<the repository> -Dbuild=<its build folder> -Dwork=<an empty folder>
#   -Dgenerator=... -Dmake=... -Dcompiler=... -Dnvcc=... -P cuda.cmake
function(run)
  execute_process(
    COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output
  )
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed: ${command}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${work}")
run("${CMAKE_COMMAND}" --install "${build}" --prefix "${work}/prefix")
foreach(host IN ITEMS fetch: fetch:17 find: find:17)
  string(REGEX REPLACE ":.*" "" how "${host}")
  string(REGEX REPLACE ".*:" "" standard "${host}")
  run(
    "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/cuda_consumer" -B "${work}/${how}${standard}"
    -G "${generator}" "-DCMAKE_MAKE_PROGRAM=${make}" "-DCMAKE_CXX_COMPILER=${compiler}"
    "-DCMAKE_CUDA_COMPILER=${nvcc}" -DCMAKE_CUDA_ARCHITECTURES=90-real -DCMAKE_CUDA_FLAGS=-O0
    "-Dhow=${how}" "-Dcuda_standard=${standard}" "-DCMAKE_PREFIX_PATH=${work}/prefix"
    "-DFETCHCONTENT_SOURCE_DIR_PENSTOCK=${source}" -DFETCHCONTENT_FULLY_DISCONNECTED=ON
  )
  run("${CMAKE_COMMAND}" --build "${work}/${how}${standard}")
endforeach()
