# SPDX-License-Identifier: BSL-1.0
# The test headers/clang: cmake -Dcompiler=<clang++> -Dsources=<the generated units>
# -Dinclude=<folders>
#   -Dprecompiled=<file> -P clang.cmake. Compiles every unit as C++20, and the unit with all headers
# also as C++23. The standard library comes first, precompiled, which halves the time. The compiler
# of the build, which uses the same library, checks that a header includes what it needs.
cmake_policy(VERSION 3.25)
if(NOT compiler)
  message("skipped: no clang++ here")
  return()
endif()
set(flags -fsyntax-only -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Werror)
string(REPLACE "|" ";" include "${include}")
foreach(folder IN LISTS include)
  if(folder MATCHES "/include$" AND EXISTS "${folder}/penstock")
    list(APPEND flags "-I${folder}")
  elseif(NOT folder STREQUAL "/usr/include")  # default search path, already in the right order
    list(APPEND flags -isystem "${folder}")
  endif()
endforeach()
file(GLOB_RECURSE units "${sources}/*.cpp")
file(STRINGS "${sources}/macros.cpp" standard REGEX "^#include <[a-z_]+>$")
list(JOIN standard "\n" standard)
file(WRITE "${precompiled}.hpp" "${standard}\n")
set(bad)
execute_process(
  COMMAND "${compiler}" -std=c++20 -x c++-header "${precompiled}.hpp" -o "${precompiled}" RESULT_VARIABLE status
)
if(NOT status EQUAL 0)
  list(APPEND bad "the standard library")
endif()
foreach(unit IN LISTS units)
  set(dialects 20)
  set(first -include-pch "${precompiled}")
  if(unit MATCHES "/macros\\.cpp$")
    list(APPEND dialects 2b)
    set(first)
  endif()
  foreach(dialect IN LISTS dialects)
    execute_process(
      COMMAND "${compiler}" ${flags} -std=c++${dialect} ${first} "${unit}" RESULT_VARIABLE status
    )
    if(NOT status EQUAL 0)
      list(APPEND bad "${unit} in C++${dialect}")
    endif()
  endforeach()
endforeach()
list(LENGTH units count)
if(bad OR count LESS 40)
  list(JOIN bad "\n" bad)
  message(FATAL_ERROR "of ${count} headers these do not compile:\n${bad}")
endif()
message("${count} headers")
