# SPDX-License-Identifier: BSL-1.0
# Runs the tests of penstock_compile_fail and penstock_compile_rejected:
#   cmake -Dfile=<source> -Dcopy=<where to write> -P <this> -- <compiler> <options>
#   cmake -Dsays=<text> -P <this> -- <compiler> <options and source>
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

# Uses strings instead of lists, because source text and compiler output contain [ ; ] and \.

# require_first_error(<description> <text> <maximum number of errors> <argument>...) requires that
# the first error, or a note that belongs to it, contains the text.
function(require_first_error name text most)
  execute_process(
    COMMAND ${compile} ${ARGN} RESULT_VARIABLE status ERROR_VARIABLE output OUTPUT_VARIABLE output
  )
  if(status EQUAL 0)
    message(FATAL_ERROR "${name}: compiles, and must not")
  endif()
  string(REGEX MATCHALL "error: " errors "${output}")
  list(LENGTH errors count)
  string(FIND "${output}" "error: " at)
  if(NOT at EQUAL -1)
    string(SUBSTRING "${output}" ${at} -1 first)
    string(SUBSTRING "${first}" 7 -1 others)
    string(FIND "${others}" "error: " end)
    if(NOT end EQUAL -1)
      math(EXPR end "${end} + 7")
      string(SUBSTRING "${first}" 0 ${end} first)
    endif()
    string(FIND "${first}" "${text}" at)
  endif()
  if(at EQUAL -1)
    message(FATAL_ERROR "${name}: the first error should say\n  ${text}\nof these:\n${output}")
  endif()
  if(count GREATER most)
    message(FATAL_ERROR "${name}: ${count} errors, and ${most} would do:\n${output}")
  endif()
  message(STATUS "said first: ${text}")
endfunction()

if(DEFINED says)
  require_first_error("this" "${says}" 2)
  return()
endif()

file(READ "${file}" rest)
string(REGEX REPLACE "[^\n]*// expected-error: [^\n]*\n" "\n" good "${rest}")
if(good STREQUAL rest)
  message(FATAL_ERROR "${file}: no '// expected-error: <text>' in it")
endif()
file(WRITE "${copy}" "${good}")
execute_process(
  COMMAND ${compile} "${copy}" RESULT_VARIABLE status ERROR_VARIABLE output OUTPUT_VARIABLE output
)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${file}: does not compile even without its bad lines:\n${output}")
endif()

# Compiles each bad line in a copy without the other bad lines. The copy also lacks the comment of
# the line, because compilers print the source line.
string(REGEX REPLACE "[^\n]*// compiles\n" "\n" rest "${rest}")
set(before)
while(rest MATCHES "(([^\n]*)// expected-error: ([^\n]+)\n)")
  set(line "${CMAKE_MATCH_1}")
  set(statement "${CMAKE_MATCH_2}")
  string(STRIP "${CMAKE_MATCH_3}" text)
  string(FIND "${rest}" "${line}" at)
  string(LENGTH "${line}" length)
  math(EXPR end "${at} + ${length}")
  string(SUBSTRING "${rest}" 0 ${at} skipped)
  string(SUBSTRING "${rest}" ${end} -1 rest)
  string(REGEX REPLACE "[^\n]*// expected-error: [^\n]*\n" "\n" others "${rest}")
  file(WRITE "${copy}" "${before}${skipped}${statement}\n${others}")
  require_first_error("${file}" "${text}" 1000 "${copy}")
  string(APPEND before "${skipped}\n")
endwhile()
