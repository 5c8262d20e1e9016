# SPDX-License-Identifier: BSL-1.0
# Finds the CUDA runtime and defines two targets, or no target if there is no toolkit. A CUDA
# compiler is not required. Installed next to penstock-config.cmake, so that this project and its
# users search in the same way.
#
#   penstock::cuda           the headers and CUDA::cudart, the shared runtime
#   penstock::compiled_cuda  the same, penstock::compiled, and a static library with the code
#                            that all loaders and transfers on CUDA devices share
#
# To use the static runtime, link CUDA::cudart_static and penstock::penstock instead. Alternatively
# compile penstock.cpp and penstock_cuda.cpp yourself, with PENSTOCK_COMPILED=1 and
# PENSTOCK_COMPILED_CUDA=1.
if(NOT TARGET penstock::cuda)
  find_package(CUDAToolkit 12.4 QUIET)
  if(CUDAToolkit_FOUND AND TARGET CUDA::cudart)  # the target may belong to an older toolkit
    add_library(penstock::cuda INTERFACE IMPORTED GLOBAL)
    set_property(
      TARGET penstock::cuda PROPERTY INTERFACE_LINK_LIBRARIES penstock::penstock CUDA::cudart
    )
  endif()
endif()
if(TARGET penstock::cuda AND NOT TARGET penstock_compiled_cuda)
  add_library(
    penstock_compiled_cuda STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/penstock_cuda.cpp"
  )
  add_library(penstock::compiled_cuda ALIAS penstock_compiled_cuda)
  target_link_libraries(penstock_compiled_cuda PUBLIC penstock::compiled penstock::cuda)
  target_compile_definitions(penstock_compiled_cuda PUBLIC PENSTOCK_COMPILED_CUDA=1)
  set_target_properties(penstock_compiled_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
