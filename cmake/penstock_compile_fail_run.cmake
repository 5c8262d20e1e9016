# The test of penstock_compile_fail: cmake -Dfile=... -Drest=... -P <this> -- <compiler> <options>
cmake_policy(VERSION 3.25)

set(compile)
set(after_dashes FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(after_dashes)
    list(APPEND compile "${CMAKE_ARGV${i}}")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(after_dashes TRUE)
  endif()
endforeach()

# Strings below, no lists: source text and compiler output hold [ ; ] and \.
file(READ "${file}" source)
if(NOT source MATCHES "// expected-error: [^\n]")
  message(FATAL_ERROR "${file}: no '// expected-error: <text>' in it")
endif()

string(REGEX REPLACE "[^\n]*// expected-error: [^\n]*\n" "\n" without_bad_lines "${source}")
file(WRITE "${rest}" "${without_bad_lines}")
execute_process(
  COMMAND ${compile} "${rest}" RESULT_VARIABLE status ERROR_VARIABLE output OUTPUT_VARIABLE output
)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${file}: does not compile even without its bad lines:\n${output}")
endif()

execute_process(
  COMMAND ${compile} "${file}" RESULT_VARIABLE status ERROR_VARIABLE output OUTPUT_VARIABLE output
)
if(status EQUAL 0)
  message(FATAL_ERROR "${file}: compiles, and must not")
endif()
while(source MATCHES "// expected-error: ([^\n]+)")
  string(STRIP "${CMAKE_MATCH_1}" message)
  string(FIND "${output}" "${message}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${file}: the compiler should say\n  ${message}\nand said\n${output}")
  endif()
  message(STATUS "said: ${message}")
  string(FIND "${source}" "// expected-error: " at)
  math(EXPR at "${at} + 10")
  string(SUBSTRING "${source}" ${at} -1 source)
endwhile()
