# penstock_compile_fail(<test name> <file>): a CTest test that compiles the file for its syntax
# alone and passes only when that fails and the compiler says what the file expects, a plain text
# beside the bad line:
#   ps::get<"imgae">(batch);  // expected-error: no field of this name
# Several such lines: all the messages must be found. Without these lines the file must compile, so
# that no test passes because of a typing error: a bad line is a whole statement.
set(penstock_compile_fail_script "${CMAKE_CURRENT_LIST_DIR}/penstock_compile_fail_run.cmake")

function(penstock_compile_fail name file)
  # -I, not -isystem: compilers ignore the former, and only it, for folders they search anyway.
  set(includes "$<TARGET_PROPERTY:penstock,INTERFACE_INCLUDE_DIRECTORIES>")
  # cuda_runtime_api.h: the toolkit's, or that of the tests' double
  set(cuda "$<TARGET_PROPERTY:penstock_fake_cuda,INTERFACE_INCLUDE_DIRECTORIES>")
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
  string(MAKE_C_IDENTIFIER "${name}" identifier)
  add_test(
    NAME "${name}"
    COMMAND
      "${CMAKE_COMMAND}" "-Dfile=${file}"
      "-Drest=${CMAKE_CURRENT_BINARY_DIR}/${identifier}_without_bad_lines.cpp" -P
      "${penstock_compile_fail_script}" -- "${CMAKE_CXX_COMPILER}" ${flags} -std=c++20
      -fsyntax-only "-I$<JOIN:${includes},;-I>" "-I$<JOIN:${cuda},;-I>"
    COMMAND_EXPAND_LISTS
  )
  set_tests_properties(
    "${name}" PROPERTIES LABELS compile_fail TIMEOUT 300 ENVIRONMENT LC_ALL=C
  )
endfunction()
