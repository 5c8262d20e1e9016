# SPDX-License-Identifier: BSL-1.0
# Turns on CMake's language CUDA where there is nvcc 12.4 or newer, and leaves penstock_has_cuda:
# TRUE or FALSE. Quietly does nothing else without nvcc. Include it at the highest folder whose
# targets have .cu files; once more below costs nothing.
#
#   PENSTOCK_BUILD_CUDA         OFF: as if there were no nvcc
#   CMAKE_CUDA_COMPILER         the compiler; else $CUDACXX, nvcc in the PATH,
# /usr/local/cuda/bin/nvcc
#   CMAKE_CUDA_ARCHITECTURES    what to compile for; else $CUDAARCHS, $PENSTOCK_CUDA_ARCHITECTURES,
# the
#                               GPU of this machine, or all from 7.5 to 9.0 and PTX for later ones
#
# Leaves the target penstock_cuda_options for what has .cu files: C++20, our warnings, the shared
# runtime. It replaces penstock_warnings there, whose options nvcc does not know.
include_guard(DIRECTORY)
option(PENSTOCK_BUILD_CUDA "Build what needs nvcc, where it is found" ON)

set(penstock_has_cuda FALSE)
if(PENSTOCK_BUILD_CUDA AND NOT CMAKE_CUDA_COMPILER)
  if(NOT "$ENV{CUDACXX}" STREQUAL "")
    set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}")
  else()
    find_program(
      penstock_cuda_compiler nvcc
      HINTS "${CUDAToolkit_ROOT}/bin" "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin"
            "/usr/local/cuda/bin"
    )
    mark_as_advanced(penstock_cuda_compiler)
    if(penstock_cuda_compiler)
      set(CMAKE_CUDA_COMPILER "${penstock_cuda_compiler}")
    endif()
  endif()
endif()

if(PENSTOCK_BUILD_CUDA AND CMAKE_CUDA_COMPILER)
  # What is called nvcc may be left from a toolkit that is gone; CMake would end here then.
  execute_process(
    COMMAND "${CMAKE_CUDA_COMPILER}" --version RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET
  )
  if(NOT status EQUAL 0)
    message(STATUS "penstock: no CUDA code, ${CMAKE_CUDA_COMPILER} does not run")
    unset(CMAKE_CUDA_COMPILER)
  endif()
endif()
if(PENSTOCK_BUILD_CUDA AND CMAKE_CUDA_COMPILER)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND "$ENV{CUDAARCHS}" STREQUAL "")
    if(NOT "$ENV{PENSTOCK_CUDA_ARCHITECTURES}" STREQUAL "")
      set(CMAKE_CUDA_ARCHITECTURES "$ENV{PENSTOCK_CUDA_ARCHITECTURES}")
    else()
      # What this compiler knows, and what this machine has. CMake's own "native" warns and falls
      # back to one architecture where there is no GPU.
      execute_process(
        COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-arch
        OUTPUT_VARIABLE known ERROR_QUIET
      )
      execute_process(
        COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
        RESULT_VARIABLE status OUTPUT_VARIABLE here ERROR_QUIET
      )
      set(CMAKE_CUDA_ARCHITECTURES)
      if(status EQUAL 0)
        string(REGEX MATCHALL "[0-9]+\\.[0-9]" here "${here}")
        foreach(capability IN LISTS here)
          string(REPLACE "." "" capability "${capability}")
          if(known MATCHES "compute_${capability}\n")
            list(APPEND CMAKE_CUDA_ARCHITECTURES ${capability}-real)
          endif()
        endforeach()
        list(REMOVE_DUPLICATES CMAKE_CUDA_ARCHITECTURES)
      endif()
      if(NOT CMAKE_CUDA_ARCHITECTURES)
        foreach(capability IN ITEMS 75 80 86 89)
          if(known MATCHES "compute_${capability}\n")
            list(APPEND CMAKE_CUDA_ARCHITECTURES ${capability}-real)
          endif()
        endforeach()
        list(APPEND CMAKE_CUDA_ARCHITECTURES 90)
      endif()
    endif()
    set(CMAKE_CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}" CACHE STRING "What to compile for")
  endif()
  if(NOT DEFINED CMAKE_CUDA_RUNTIME_LIBRARY)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  endif()

  include(CheckLanguage)
  check_language(CUDA)  # enable_language ends the configuration where the compiler does not work
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_ID STREQUAL "NVIDIA"
       AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.4
    )
      set(penstock_has_cuda TRUE)
    else()
      message(STATUS "penstock: no CUDA code, nvcc 12.4 or newer is needed for it, found "
                     "${CMAKE_CUDA_COMPILER_ID} ${CMAKE_CUDA_COMPILER_VERSION}"
      )
    endif()
  endif()
endif()

if(penstock_has_cuda AND NOT TARGET penstock_cuda_options)
  add_library(penstock_cuda_options INTERFACE)
  # By hand: CMake 3.25 does not know which dialects nvcc 13 has, and refuses CUDA_STANDARD 20. No
  # -Wpedantic, which the code that nvcc hands to the host compiler can't satisfy.
  target_compile_options(
    penstock_cuda_options
    INTERFACE
      "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-Xcompiler=-Wall,-Wextra,-Wconversion,-Wsign-conversion,-Wshadow>"
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PENSTOCK_WARNINGS_AS_ERRORS}>>:-Werror=all-warnings>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PENSTOCK_WARNINGS_AS_ERRORS}>>:-Xcompiler=-Werror>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PENSTOCK_NATIVE}>>:-Xcompiler=-march=native>
  )
endif()
