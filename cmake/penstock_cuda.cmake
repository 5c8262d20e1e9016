# SPDX-License-Identifier: BSL-1.0
# Finds the CUDA runtime and leaves the target penstock::cuda: the headers and CUDA::cudart, the
# shared runtime; leaves none where there is no toolkit. No compiler for CUDA is needed. Installed
# beside penstock-config.cmake: this project and those that use it look in the same way.
#
# For the static runtime link penstock::penstock and CUDA::cudart_static instead.
if(NOT TARGET penstock::cuda)
  find_package(CUDAToolkit 12.4 QUIET)
  if(CUDAToolkit_FOUND AND TARGET CUDA::cudart)  # the target may be one of an older toolkit
    add_library(penstock::cuda INTERFACE IMPORTED GLOBAL)
    set_property(
      TARGET penstock::cuda PROPERTY INTERFACE_LINK_LIBRARIES penstock::penstock CUDA::cudart
    )
  endif()
endif()
