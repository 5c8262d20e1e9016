# SPDX-License-Identifier: BSL-1.0
# cmake -Dnvcc=NVCC -Droot=PROJECT -Dptx=FILE -P layout.cmake: see layout.cu.
set(all)
foreach(checked IN ITEMS 0 1)
  execute_process(
    COMMAND "${nvcc}" -std=c++20 -DPENSTOCK_CHECKED=${checked} -ptx "-I${root}/include"
            "-I${root}/tests" "${root}/tests/gpu/layout.cu" -o "${ptx}" RESULT_VARIABLE failed
  )
  if(failed)
    message(FATAL_ERROR "layout.cu does not compile")
  endif()
  file(READ "${ptx}" text)
  string(REGEX MATCHALL "takesILm[0-9]+E[^\n]*_param_0\\[[0-9]+\\]" parameters "${text}")
  list(LENGTH parameters count)
  if(NOT count EQUAL 10)
    message(FATAL_ERROR "found ${count} kernels in ${ptx}, expected 10")
  endif()
  list(APPEND all ${parameters})
endforeach()
foreach(parameter IN LISTS all)
  string(REGEX REPLACE "takesILm([0-9]+)E(.*)_param_0\\[([0-9]+)\\]" "\\1;\\3" sizes "${parameter}")
  list(GET sizes 0 host)
  list(GET sizes 1 device)
  if(NOT host EQUAL device)
    message(SEND_ERROR "${host} bytes on the host, ${device} on the device: ${parameter}")
  endif()
endforeach()
