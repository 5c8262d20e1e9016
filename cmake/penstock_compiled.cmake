# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::compiled: a static library with one source, which contains the code
# that all datasets and records share. The project that links it builds it with its own flags and
# definitions. Installed next to penstock-config.cmake, together with the source.
if(NOT TARGET penstock_compiled)
  add_library(penstock_compiled STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/penstock.cpp")
  add_library(penstock::compiled ALIAS penstock_compiled)
  target_link_libraries(penstock_compiled PUBLIC penstock::penstock)
  target_compile_definitions(penstock_compiled PUBLIC PENSTOCK_COMPILED=1)
  set_target_properties(penstock_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
