# penstock_add_header_tests(<target>): every public header alone, as its own translation unit,
# included twice: fails to build when one leans on what another happened to include, or lacks its
# guard. One more unit has all of them below macros with short names that system headers are known
# to define.
function(penstock_add_header_tests target)
  set(root "${PROJECT_SOURCE_DIR}/include")
  set(out "${CMAKE_CURRENT_BINARY_DIR}/header_tests")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE "${root}" "${root}/penstock/*.hpp")
  if(NOT TARGET penstock::gzip)
    list(FILTER headers EXCLUDE REGEX "/data/gzip\\.hpp$")
  endif()
  if(NOT headers)
    return()
  endif()

  set(sources)
  set(foreign)
  set(own)
  foreach(header IN LISTS headers)
    string(REPLACE ".hpp" ".cpp" source "${out}/${header}")
    configure_file("${PROJECT_SOURCE_DIR}/cmake/header_test.cpp.in" "${source}" @ONLY)
    list(APPEND sources "${source}")
    list(APPEND own "#include <${header}>")
    file(STRINGS "${root}/${header}" includes REGEX "^#include <")
    list(FILTER includes EXCLUDE REGEX "<penstock/")
    list(APPEND foreign ${includes})
    # A header that gains an include has to reach the generated source.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${root}/${header}")
  endforeach()
  list(SORT foreign)
  list(REMOVE_DUPLICATES foreign)
  list(JOIN foreign "\n" foreign_includes)
  list(JOIN own "\n" own_includes)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/header_macros.cpp.in" "${out}/macros.cpp" @ONLY)

  add_library(${target} OBJECT ${sources} "${out}/macros.cpp")
  target_link_libraries(${target} PRIVATE penstock_program)
endfunction()
