# A compiler, or a set of its options, that the library refuses: the first error says why, and there are
# no hundreds after it.
#   cmake -Dinclude=<folder> -Dsays=<text> -P refused.cmake -- <compiler> <options>
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

execute_process(
  COMMAND ${compile} -fsyntax-only "-I${include}" -x c++ "${include}/penstock/penstock.hpp"
  RESULT_VARIABLE status ERROR_VARIABLE output OUTPUT_VARIABLE output
)
if(status EQUAL 0)
  message(FATAL_ERROR "compiles, and should be refused")
endif()
string(REGEX MATCH "error: [^\n]*" first "${output}")
string(REGEX MATCHALL "error: " errors "${output}")
list(LENGTH errors count)
string(FIND "${first}" "${says}" at)
if(at EQUAL -1 OR count GREATER 2)
  message(FATAL_ERROR "should say '${says}' at once and nothing more, said in ${count} errors:\n${output}")
endif()
