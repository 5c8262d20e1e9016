# SPDX-License-Identifier: BSL-1.0
# Tests that a project which includes penstock is a checked build in Debug, unless the option is
# set:
#   cmake -Dpenstock=<source> -Dcompiler=<C++ compiler> -Dwork=<folder> -Dgenerator=...
#   -Dmake=... -P by_itself.cmake
cmake_policy(VERSION 3.25)
file(WRITE "${work}/CMakeLists.txt" "
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
add_subdirectory(\"${penstock}\" penstock)
add_executable(consumer main.cpp)
target_link_libraries(consumer PRIVATE penstock::penstock)
file(GENERATE OUTPUT defined CONTENT \"$<TARGET_PROPERTY:consumer,COMPILE_DEFINITIONS>\"
     TARGET consumer)
")
file(WRITE "${work}/main.cpp" "int main() {}\n")

# expect(<build type> <setting> <expected check level>)
function(expect type setting expected)
  file(REMOVE "${work}/build/CMakeCache.txt" "${work}/build/defined")
  set(chosen)
  if(NOT setting STREQUAL "")
    set(chosen "-DPENSTOCK_CHECKED=${setting}")
  endif()
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${work}" -B "${work}/build" -G "${generator}"
            "-DCMAKE_MAKE_PROGRAM=${make}" "-DCMAKE_CXX_COMPILER=${compiler}"
            "-DCMAKE_BUILD_TYPE=${type}" ${chosen}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output
  )
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${output}")
  endif()
  file(READ "${work}/build/defined" defined)
  set(level 0)
  if("${defined}" MATCHES "PENSTOCK_CHECKED=([0-9]+)")
    set(level ${CMAKE_MATCH_1})
  endif()
  if(NOT level EQUAL expected)
    message(FATAL_ERROR "${type}, PENSTOCK_CHECKED=${setting}: level ${level}, not ${expected}")
  endif()
endfunction()

expect(Debug "" 1)
expect(Release "" 0)
expect(RelWithDebInfo AUTO 0)
expect(Debug NO 0)
expect(Release ON 1)
