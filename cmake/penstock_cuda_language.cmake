# SPDX-License-Identifier: BSL-1.0
# Enables CMake's language CUDA if nvcc 12.4 or newer is found, and sets penstock_has_cuda to TRUE
# or FALSE. Without nvcc, this file does nothing else and prints no message. Include this file in
# the top-most folder whose targets have .cu files; including it again in subfolders has no effect.
#
#   PENSTOCK_BUILD_CUDA         OFF ignores an installed nvcc
#   CMAKE_CUDA_COMPILER         the compiler; else $CUDACXX, nvcc in the PATH,
#                               /usr/local/cuda/bin/nvcc
#   CMAKE_CUDA_ARCHITECTURES    the architectures; else $CUDAARCHS, $PENSTOCK_CUDA_ARCHITECTURES,
#                               the GPU of this machine, or all from 7.5 to 9.0 and PTX for later
#                               GPUs
#
# Defines the target penstock_cuda_options for targets with .cu files: the project's warnings and
# the shared runtime. It replaces penstock_warnings there, because nvcc does not know the options of
# penstock_warnings.
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
  # An nvcc may be left over from a removed toolkit, in which case CMake would stop with an error.
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
      # Selects the architectures that this compiler supports and this machine has. Without a GPU,
      # CMake's own "native" warns and falls back to a single architecture.
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
  check_language(CUDA)  # enable_language would stop the configuration if the compiler does not work
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
  # Omits -Wpedantic, because the code that nvcc passes to the host compiler violates it.
  target_compile_options(
    penstock_cuda_options
    INTERFACE
      "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wconversion,-Wsign-conversion,-Wshadow>"
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PENSTOCK_WARNINGS_AS_ERRORS}>>:-Werror=all-warnings>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PENSTOCK_WARNINGS_AS_ERRORS}>>:-Xcompiler=-Werror>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${PENSTOCK_NATIVE}>>:-Xcompiler=-march=native>
  )
endif()
