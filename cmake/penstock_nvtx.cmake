# SPDX-License-Identifier: BSL-1.0
# Leaves the target penstock::nvtx: the library with its stages marked for profilers that read NVTX,
# such as Nsight Systems; leaves none where there is no CUDA toolkit, whose headers it needs. What
# one part of a program links all of its parts have to: the inline namespace keeps others apart.
# Installed beside penstock-config.cmake, as penstock_cuda.cmake.
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
