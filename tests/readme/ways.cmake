# The test readme/ways: the four ways of use in the README, word for word, with its first program.
#   cmake -Droot=<the repository> -Dwork=<scratch> -Dgenerator=... -Dmake=... -Dboost=<the headers'
#   folder> -Dcompiler=... -P ways.cmake
cmake_policy(VERSION 3.25)
file(REMOVE_RECURSE "${work}")
file(READ "${root}/README.md" readme)

# What a user has besides the README: the library in a folder penstock, without our tests and examples.
foreach(part IN ITEMS CMakeLists.txt CMakePresets.json include cmake docs)
  file(COPY "${root}/${part}" DESTINATION "${work}/penstock")
endforeach()

# Takes the next block in ```<language> out of what is left of the README.
macro(take_block language variable)
  string(FIND "${readme}" "\n```${language}\n" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "README.md: no further block of ${language} for ${variable}")
  endif()
  string(LENGTH "\n```${language}\n" skip)
  math(EXPR at "${at} + ${skip}")
  string(SUBSTRING "${readme}" ${at} -1 readme)
  string(FIND "${readme}" "\n```\n" at)
  string(SUBSTRING "${readme}" 0 ${at} ${variable})
  math(EXPR at "${at} + 4")
  string(SUBSTRING "${readme}" ${at} -1 readme)
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

take_block(cpp program)
take_block(cmake fetched)
take_block(cmake subdirectory)
take_block(cmake installed)
take_block(sh install)
take_block(sh plain)
file(WRITE "${work}/my_program.cpp" "${program}\n")

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
  if(way STREQUAL "fetched")  # the folder stands for the download
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

string(REPLACE "g++ " "'${compiler}' " plain "${plain}")
string(REPLACE "-I penstock/include" "-I penstock/include -isystem '${boost}'" plain "${plain}")
string(REPLACE "-isystem '/usr/include'" "" plain "${plain}")
run("${work}" sh -c "${plain}")
run("${work}" ./my_program)
list(APPEND results "${output}")

list(GET results 0 first)
if(NOT first MATCHES "^[0-9]+\n$")
  message(FATAL_ERROR "the README's program prints '${first}'")
endif()
list(REMOVE_DUPLICATES results)
list(LENGTH results count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "the four ways differ: ${results}")
endif()
