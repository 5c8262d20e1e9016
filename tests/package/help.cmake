# SPDX-License-Identifier: BSL-1.0
# The test package/help: for --help, each script must print its help without installing, building or
# running anything first. Stand-ins for the tools record their calls.
#
#   cmake -Droot=<the repository> -Dwork=<an empty folder> -P help.cmake
cmake_policy(VERSION 3.25)
file(REMOVE_RECURSE "${work}")
foreach(tool IN ITEMS apt-get c++ clang++ cmake cp ctest curl doxygen g++ git gzip mkdir mktemp nproc
                      nvcc nvidia-smi pip python3 rm sudo tar wget)
  file(WRITE "${work}/bin/${tool}" "#!/bin/sh\necho \"$0 $*\" >>'${work}/called'\nexit 1\n")
  file(CHMOD "${work}/bin/${tool}" PERMISSIONS OWNER_READ OWNER_EXECUTE)
endforeach()
set(ENV{PATH} "${work}/bin:$ENV{PATH}")

file(GLOB_RECURSE scripts "${root}/*.sh")
# Excludes setup.sh, because scripts source it.
list(FILTER scripts EXCLUDE REGEX "^${root}/build/|/cmake/setup\\.sh$")
list(LENGTH scripts count)
if(count LESS 12)
  message(FATAL_ERROR "expected 12 scripts or more, found ${scripts}")
endif()
foreach(script IN LISTS scripts ITEMS "${root}/.ci/run")
  execute_process(
    COMMAND bash "${script}" --help WORKING_DIRECTORY "${work}" RESULT_VARIABLE status
    OUTPUT_VARIABLE output ERROR_VARIABLE error
  )
  if(EXISTS "${work}/called")
    file(READ "${work}/called" called)
    message(FATAL_ERROR "${script} --help calls\n${called}")
  endif()
  if(NOT status EQUAL 0 OR NOT output MATCHES "\n.*\n")
    message(FATAL_ERROR "${script} --help ends with status ${status}\n${output}${error}")
  endif()
endforeach()
