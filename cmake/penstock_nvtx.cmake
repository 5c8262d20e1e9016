# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::nvtx: the library with annotated stages for profilers that support
# NVTX, such as Nsight Systems. The target is defined only if a CUDA toolkit provides the headers.
# All parts of a program that share penstock types must link the target; the inline namespace keeps
# other parts separate. Installed next to penstock-config.cmake, like penstock_cuda.cmake.
if(NOT TARGET penstock::nvtx)
  find_package(CUDAToolkit 12.4 QUIET)
  if(CUDAToolkit_FOUND)
    add_library(penstock::nvtx INTERFACE IMPORTED GLOBAL)
    set_target_properties(
      penstock::nvtx
      PROPERTIES INTERFACE_LINK_LIBRARIES "penstock::penstock;${CMAKE_DL_LIBS}"
                 INTERFACE_INCLUDE_DIRECTORIES "${CUDAToolkit_INCLUDE_DIRS}"
                 INTERFACE_COMPILE_DEFINITIONS PENSTOCK_NVTX=1
    )
  endif()
endif()
