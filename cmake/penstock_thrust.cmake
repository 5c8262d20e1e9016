# SPDX-License-Identifier: BSL-1.0
# penstock_thrust_host: Thrust on the host alone, for any C++ compiler and without a GPU. Out of a
# CUDA toolkit if there is one (from 13 on in include/cccl, before in include), else out of Debian's
# libthrust-dev. No target when there is neither. PENSTOCK_THRUST_INCLUDE_DIR names the folder by
# hand.
#
# The system is the sequential one for host and device vectors alike: one order of summation, so the
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
  # Imported, so that its headers are system headers and our warnings spare them.
  add_library(penstock_thrust_host INTERFACE IMPORTED GLOBAL)
  target_include_directories(penstock_thrust_host INTERFACE "${PENSTOCK_THRUST_INCLUDE_DIR}")
  target_compile_definitions(
    penstock_thrust_host INTERFACE THRUST_HOST_SYSTEM=THRUST_HOST_SYSTEM_CPP
                                   THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_CPP
  )
endif()
