# SPDX-License-Identifier: BSL-1.0
# Tests penstock::parquet with Arrow's CMake packages. The target must prefer shared to static
# libraries and never mix both kinds.
#
#   cmake -Dsource=<the repository> -Dwork=<an empty folder> -Dgenerator=...
#   -Dmake=... -P arrow.cmake
function(expect name arrow parquet expected)
  execute_process(
    COMMAND
      "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/arrow" -B "${work}/${name}" -G
      "${generator}" "-DCMAKE_MAKE_PROGRAM=${make}"
      "-Dsource=${source}" "-Darrow=${arrow}" "-Dparquet=${parquet}" "-Dexpected=${expected}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output
  )
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${name}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${work}")
set(shared "Parquet::parquet_shared;Arrow::arrow_shared")
set(static "Parquet::parquet_static;Arrow::arrow_static")
expect(both "shared;static" "shared;static" "${shared}")
expect(static static static "${static}")
expect(mixed "shared;static" static "${static}")
expect(apart shared static none)
expect(no_parquet shared "" none)
