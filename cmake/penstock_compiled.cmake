# SPDX-License-Identifier: BSL-1.0
# penstock::compiled: what is the same for all datasets and records, as a static library of one
# source. It is made where it is used, by the flags and definitions of that project, and only if
# something links it. Installed beside penstock-config.cmake, with the source.
if(NOT TARGET penstock_compiled)
  add_library(penstock_compiled STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_LIST_DIR}/penstock.cpp")
  add_library(penstock::compiled ALIAS penstock_compiled)
  target_link_libraries(penstock_compiled PUBLIC penstock::penstock)
  target_compile_definitions(penstock_compiled PUBLIC PENSTOCK_COMPILED=1)
  set_target_properties(penstock_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
