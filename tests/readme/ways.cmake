# SPDX-License-Identifier: BSL-1.0
# The test readme/ways: pastes the program of "Try it" in README.md, runs the commands of that
# section, and compares their output with the page. Also runs the installation commands in README.md
# and docs/install.md verbatim, with the same program.
#   cmake -Droot=<the repository> -Dwork=<scratch> -Dgenerator=... -Dmake=... -Dboost=<the headers'
#   folder> -Dcompiler=... -P ways.cmake
cmake_policy(VERSION 3.25)
file(REMOVE_RECURSE "${work}")
file(READ "${root}/README.md" readme)
file(READ "${root}/docs/install.md" install_page)

# Simulates a user who has the library in a folder named penstock, without its tests.
foreach(part IN ITEMS CMakeLists.txt CMakePresets.json include cmake docs examples)
  file(COPY "${root}/${part}" DESTINATION "${work}/penstock")
endforeach()

# Removes the next ```<language> block from the rest of a page, which is in the variable <page>.
macro(take_block page language variable)
  string(FIND "${${page}}" "\n```${language}\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${page}: no further block of ${language} for ${variable}")
  endif()
  string(LENGTH "\n```${language}\n" skip)
  math(EXPR at "${at} + ${skip}")
  string(SUBSTRING "${${page}}" ${at} -1 ${page})
  string(FIND "${${page}}" "\n```\n" at)
  string(SUBSTRING "${${page}}" 0 ${at} ${variable})
  math(EXPR at "${at} + 4")
  string(SUBSTRING "${${page}}" ${at} -1 ${page})
endmacro()

function(run folder)
  execute_process(
    COMMAND ${ARGN} WORKING_DIRECTORY "${folder}" RESULT_VARIABLE status OUTPUT_VARIABLE out
    ERROR_VARIABLE out
  )
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed: ${command}\n${out}")
  endif()
  set(output "${out}" PARENT_SCOPE)
endfunction()

take_block(readme cpp program)
take_block(readme sh try)
take_block(readme cmake fetched)
take_block(install_page cmake subdirectory)
take_block(install_page cmake installed)
take_block(install_page sh install)
take_block(install_page sh plain)
file(WRITE "${work}/my_program.cpp" "${program}\n")
file(WRITE "${work}/first.cpp" "${program}\n")

set(ENV{PREFIX} "${work}/prefix")
set(ENV{CMAKE_GENERATOR} "${generator}")
set(ENV{CXX} "${compiler}")
set(ENV{BOOST_ROOT} "${boost}")
string(REPLACE "cmake " "'${CMAKE_COMMAND}' " install "${install}")
run("${work}" sh -c "${install}")

set(results)
foreach(way IN ITEMS fetched subdirectory installed)
  string(REPLACE "<this repository>" "\"${work}/penstock\"" lines "${${way}}")
  set(folder "${work}/${way}")
  file(COPY "${work}/my_program.cpp" DESTINATION "${folder}")
  if(way STREQUAL "subdirectory")
    file(CREATE_LINK "${work}/penstock" "${folder}/penstock" SYMBOLIC)
  endif()
  file(
    WRITE "${folder}/CMakeLists.txt"
    "cmake_minimum_required(VERSION 3.25)\nproject(mine LANGUAGES CXX)\n"
    "add_executable(my_program my_program.cpp)\n${lines}\n"
  )
  set(options)
  if(way STREQUAL "fetched")  # uses the folder instead of a download
    set(options "-DFETCHCONTENT_SOURCE_DIR_PENSTOCK=${work}/penstock"
                -DFETCHCONTENT_FULLY_DISCONNECTED=ON
    )
  elseif(way STREQUAL "installed")
    set(options "-DCMAKE_PREFIX_PATH=$ENV{PREFIX}")
  endif()
  run("${folder}" "${CMAKE_COMMAND}" -S . -B build "-DCMAKE_MAKE_PROGRAM=${make}" ${options})
  run("${folder}" "${CMAKE_COMMAND}" --build build)
  run("${folder}" build/my_program)
  list(APPEND results "${output}")
endforeach()

# Adapts the commands of a page to this compiler. Disabling optimization halves their time.
function(as_here commands variable)
  string(REPLACE "g++ " "'${compiler}' " commands "${commands}")
  string(REPLACE " -O2 " " -O0 -isystem '${boost}' " commands "${commands}")
  string(REPLACE "-isystem '/usr/include'" "" commands "${commands}")
  set(${variable} "${commands}" PARENT_SCOPE)
endfunction()

as_here("${plain}" plain)
run("${work}" sh -c "${plain}")
run("${work}" ./my_program)
list(APPEND results "${output}")

# "Try it" consists of a clone command, other commands, and their output after "# ".
string(REGEX REPLACE "^git clone [^\n]*\n" "" commands "${try}")
if(commands STREQUAL try)
  message(FATAL_ERROR "README.md: the first command of the first block is no git clone: ${try}")
endif()
string(REGEX MATCHALL "\n# [^\n]*" expected "${commands}")
list(JOIN expected "" expected)
string(REGEX REPLACE "\n# ([^\n]*)" "\\1\n" expected "${expected}")
string(REGEX REPLACE "\n# [^\n]*" "" commands "${commands}")
as_here("${commands}" commands)
run("${work}" sh -c "${commands}")
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "README.md says that its commands print\n${expected}they print\n${output}")
endif()
list(APPEND results "${output}")

list(REMOVE_DUPLICATES results)
list(LENGTH results count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "the ways differ: ${results}")
endif()
