# penstock_add_header_tests(<target>): every public header alone, as its own translation unit,
# included twice: fails to build when one leans on what another happened to include, or lacks its
# guard. One more unit has all of them below macros with short names that system headers are known
# to define, once in C++20 and, where the compiler has it, once in C++23. What a user may give nvcc,
# the umbrellas and the device headers, it compiles as well; clang++, where it is found and is not the
# compiler anyway, gets every header in the test headers/clang.
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
  # cuda_runtime_api.h
  target_include_directories(
    ${target} SYSTEM PRIVATE $<TARGET_PROPERTY:penstock_fake_cuda,INTERFACE_INCLUDE_DIRECTORIES>
  )
  if("cxx_std_23" IN_LIST CMAKE_CXX_COMPILE_FEATURES)
    add_library(${target}_23 OBJECT "${out}/macros.cpp")
    target_link_libraries(${target}_23 PRIVATE penstock_program)
    target_compile_features(${target}_23 PRIVATE cxx_std_23)
    target_include_directories(
      ${target}_23 SYSTEM PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>
    )
  endif()

  if(penstock_has_cuda)
    set(sources)
    foreach(header IN ITEMS penstock.hpp cuda.hpp device/on_device.cuh device/transform_kernel.cuh)
      set(header "penstock/${header}")
      configure_file(
        "${PROJECT_SOURCE_DIR}/cmake/header_test.cpp.in" "${out}/nvcc/${header}.cu" @ONLY
      )
      list(APPEND sources "${out}/nvcc/${header}.cu")
    endforeach()
    add_library(${target}_nvcc OBJECT ${sources})
    target_link_libraries(${target}_nvcc PRIVATE penstock::penstock penstock_cuda_options)
  endif()

  find_program(PENSTOCK_CLANG NAMES clang++-14 clang++ DOC "A second compiler for the header tests")
  mark_as_advanced(PENSTOCK_CLANG)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_test(
      NAME headers/clang
      COMMAND
        "${CMAKE_COMMAND}" "-Dcompiler=${PENSTOCK_CLANG}" "-Dsources=${out}"
        "-Dinclude=$<JOIN:$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>,|>" -P
        "${PROJECT_SOURCE_DIR}/cmake/penstock_headers_with.cmake"
    )
    set_tests_properties(
      headers/clang PROPERTIES LABELS headers TIMEOUT 600 SKIP_REGULAR_EXPRESSION "^skipped: "
    )
  endif()
endfunction()
