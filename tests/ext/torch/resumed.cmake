# SPDX-License-Identifier: BSL-1.0
# Tests resuming in examples/09_libtorch: cmake -Dprogram=<example> -Dwork=<scratch> -P
# resumed.cmake
#
# A run that is stopped twice, and resumes with another number of workers each time, must end with
# the weights of an uninterrupted run.
cmake_policy(VERSION 3.25)
file(MAKE_DIRECTORY "${work}")
set(checkpoint "${work}/checkpoint")
file(REMOVE "${checkpoint}")

# run(<exit status> <text> <argument>...) requires that the program exits with this status and that
# its last output line begins with this text. Sets last_line.
function(run status begin)
  execute_process(
    COMMAND "${program}" ${ARGN} RESULT_VARIABLE found OUTPUT_VARIABLE output ERROR_VARIABLE output
  )
  string(REGEX MATCH "[^\n]*\n$" line "${output}")
  if(NOT found STREQUAL status OR NOT line MATCHES "^${begin}")
    message(FATAL_ERROR "expected status ${status} and '${begin}', found ${found}:\n${output}")
  endif()
  set(last_line "${line}" PARENT_SCOPE)
endfunction()

run(0 "weights ")
set(whole "${last_line}")
run(3 "stopped at penstock_state=1 epoch=0 " "${checkpoint}" 1 37)
run(3 "stopped at penstock_state=1 epoch=1 " "${checkpoint}" 0 80)
run(0 "weights " "${checkpoint}" 3)
if(NOT last_line STREQUAL whole)
  message(FATAL_ERROR "expected ${whole}found    ${last_line}")
endif()
message(STATUS "${whole}")
