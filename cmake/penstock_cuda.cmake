# SPDX-License-Identifier: BSL-1.0
# Finds the CUDA runtime and leaves the target penstock::cuda: the headers and CUDA::cudart, the
# shared runtime; leaves none where there is no toolkit. No compiler for CUDA is needed. Installed
# beside penstock-config.cmake: this project and those that use it look in the same way.
#
# penstock::compiled_cuda is the same with what loaders and transfers on CUDA devices share compiled
# once, as penstock::compiled has it of the CPU device.
#
# For the static runtime link penstock::penstock and CUDA::cudart_static instead.
if(NOT TARGET penstock::cuda)
  find_package(CUDAToolkit 12.4 QUIET)
  if(CUDAToolkit_FOUND AND TARGET CUDA::cudart)  # the target may be one of an older toolkit
    add_library(penstock::cuda INTERFACE IMPORTED GLOBAL)
    set_property(
      TARGET penstock::cuda PROPERTY INTERFACE_LINK_LIBRARIES penstock::penstock CUDA::cudart
    )
    add_library(penstock_compiled_cuda STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/penstock_cuda.cpp")
    add_library(penstock::compiled_cuda ALIAS penstock_compiled_cuda)
    target_link_libraries(penstock_compiled_cuda PUBLIC penstock::compiled penstock::cuda)
    target_compile_definitions(penstock_compiled_cuda PUBLIC PENSTOCK_COMPILED_CUDA=1)
    set_target_properties(penstock_compiled_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
endif()
