# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock_thrust_host: Thrust on the host only, for any C++ compiler and without
# a GPU. The headers come from a CUDA toolkit (include/cccl since version 13, include before) or
# from Debian's libthrust-dev. The target is not defined if neither is found.
# PENSTOCK_THRUST_INCLUDE_DIR sets the folder manually.
#
# Host and device vectors both use the sequential system, because a fixed summation order gives the
# same bits in every run.
find_program(penstock_nvcc nvcc)
mark_as_advanced(penstock_nvcc)
if(penstock_nvcc)
  file(REAL_PATH "${penstock_nvcc}" penstock_nvcc_path)
  cmake_path(GET penstock_nvcc_path PARENT_PATH penstock_nvcc_dir)
endif()
set(penstock_cuda_roots)
foreach(
  root IN ITEMS "${CUDAToolkit_ROOT}" "$ENV{CUDAToolkit_ROOT}" "$ENV{CUDA_HOME}" "$ENV{CUDA_PATH}"
                "${penstock_nvcc_dir}/.." "/usr/local/cuda"
)
  if(root AND IS_DIRECTORY "${root}/include")
    list(APPEND penstock_cuda_roots "${root}")
  endif()
endforeach()

find_path(
  PENSTOCK_THRUST_INCLUDE_DIR thrust/version.h
  HINTS ${penstock_cuda_roots}
  PATH_SUFFIXES include/cccl include
  DOC "The folder that holds thrust/version.h"
)
mark_as_advanced(PENSTOCK_THRUST_INCLUDE_DIR)

if(PENSTOCK_THRUST_INCLUDE_DIR AND NOT TARGET penstock_thrust_host)
  # An imported target, so that its headers are system headers and cause no warnings.
  add_library(penstock_thrust_host INTERFACE IMPORTED GLOBAL)
  target_include_directories(penstock_thrust_host INTERFACE "${PENSTOCK_THRUST_INCLUDE_DIR}")
  target_compile_definitions(
    penstock_thrust_host INTERFACE THRUST_HOST_SYSTEM=THRUST_HOST_SYSTEM_CPP
                                   THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP
  )
endif()
