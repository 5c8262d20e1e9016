# SPDX-License-Identifier: BSL-1.0
# penstock_compile_fail(<test name> <file>): adds a CTest test that checks the syntax of the file.
# The test passes if each bad line fails to compile and the first error contains the text that is
# written next to the line:
#   ps::get<"imgae">(batch);  // expected-error: no field of this name
# A bad line is a whole statement, and is compiled without the other bad lines. The file must
# compile if all bad lines are removed, so that a typing error cannot make a test pass. Lines that
# end in "// compiles" are compiled only in this step.
#
# penstock_compile_rejected(<test name> <text> <option>...): adds a test with compiler options that
# the library does not support. Including the library must immediately give an error with this text,
# and at most one other error.
#
# If g++ and clang++ are both installed, each test runs with each compiler. The test of the second
# compiler is <test name>.other. The tests compile_fail/umbrella and compile_fail/umbrella.other
# parse the library once for each compiler. CTest runs them first.
set(penstock_compile_fail_script "${CMAKE_CURRENT_LIST_DIR}/penstock_compile_fail_run.cmake")
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  find_program(PENSTOCK_OTHER_COMPILER NAMES g++ DOC "A second compiler for code that must not compile")
else()
  find_program(
    PENSTOCK_OTHER_COMPILER NAMES clang++-14 clang++ DOC "A second compiler for code that must not compile"
  )
endif()
mark_as_advanced(PENSTOCK_OTHER_COMPILER)

# The precompiled umbrella header. g++ finds it next to the header, and clang++ receives its name.
set(penstock_compile_fail_umbrella "${CMAKE_CURRENT_BINARY_DIR}/umbrella")
file(WRITE "${penstock_compile_fail_umbrella}/umbrella.hpp" "#include <penstock/penstock.hpp>\n")

# penstock_compile_fail_test(<name> <definition>... -- <compiler argument>...): adds a test for each
# compiler. A test of a <file> includes the umbrella header first. Without definitions, the test
# compiles only the umbrella header.
function(penstock_compile_fail_test name)
  list(FIND ARGN "--" dashes)
  list(SUBLIST ARGN 0 ${dashes} definitions)
  math(EXPR dashes "${dashes} + 1")
  list(SUBLIST ARGN ${dashes} -1 arguments)
  # Uses -I instead of -isystem, because a compiler ignores -I for folders that it searches by
  # default.
  set(includes "$<TARGET_PROPERTY:penstock,INTERFACE_INCLUDE_DIRECTORIES>")
  # The folder of cuda_runtime_api.h, from the toolkit or from the fake CUDA runtime.
  set(cuda "$<TARGET_PROPERTY:penstock_fake_cuda,INTERFACE_INCLUDE_DIRECTORIES>")
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
  set(umbrella "${penstock_compile_fail_umbrella}/umbrella.hpp")
  set(which)
  foreach(compiler IN ITEMS "${CMAKE_CXX_COMPILER}" "${PENSTOCK_OTHER_COMPILER}")
    if(NOT compiler)
      continue()
    endif()
    set(compile
        "${compiler}" ${flags} "-I$<JOIN:${includes},$<SEMICOLON>-I>"
        "-I$<JOIN:${cuda},$<SEMICOLON>-I>" ${arguments}
    )
    if(compiler MATCHES "clang")
      set(precompiled "${umbrella}.pch")
      set(begin -include-pch "${precompiled}")
    else()
      set(precompiled "${umbrella}.gch")
      set(begin -include "${umbrella}")
    endif()
    if(NOT definitions)
      set(command ${compile} -x c++-header "${umbrella}" -o "${precompiled}")
    else()
      if(NOT definitions MATCHES "^-Dfile=")
        set(begin)
      endif()
      string(MAKE_C_IDENTIFIER "${name}${which}" identifier)
      set(command
          "${CMAKE_COMMAND}" ${definitions} "-Dcopy=${CMAKE_CURRENT_BINARY_DIR}/${identifier}.cpp" -P
          "${penstock_compile_fail_script}" -- ${compile} -fsyntax-only ${begin}
      )
    endif()
    add_test(NAME "${name}${which}" COMMAND ${command} COMMAND_EXPAND_LISTS)
    set_tests_properties(
      "${name}${which}" PROPERTIES LABELS compile_fail TIMEOUT 900 ENVIRONMENT LC_ALL=C
    )
    if(NOT definitions)
      set_tests_properties("${name}${which}" PROPERTIES FIXTURES_SETUP "penstock_umbrella${which}")
    elseif(begin)
      set_tests_properties("${name}${which}" PROPERTIES FIXTURES_REQUIRED "penstock_umbrella${which}")
    endif()
    set(flags)  # the second compiler may not know the flags of the first
    set(which .other)
  endforeach()
endfunction()
penstock_compile_fail_test(compile_fail/umbrella -- -std=c++20)

function(penstock_compile_fail name file)
  penstock_compile_fail_test("${name}" "-Dfile=${file}" -- -std=c++20)
endfunction()

function(penstock_compile_rejected name says)
  penstock_compile_fail_test(
    "${name}" "-Dsays=${says}" -- ${ARGN} -x c++
    "${PROJECT_SOURCE_DIR}/include/penstock/penstock.hpp"
  )
endfunction()
