# SPDX-License-Identifier: BSL-1.0
# The test of installation and use: cmake -Dbuild=<penstock's build tree> -Dsource=<this folder>
# -Dwork=<scratch>
#   -Dgenerator=... -Dmake=... -Dboost=<the headers' folder> -Dcompiler=... -Dversion=...
#   -Dcomponents=<audio,cache,gzip,hdf5,http,jpeg,json_lines,lockfree,mds,nvimgcodec,png,safetensors,search,torch,webp,zstd> -Dcuda=ON|OFF
#   -Dtorch=<libtorch's folder> -Dnvimgcodec=<nvImageCodec's folder> -P run.cmake
file(REMOVE_RECURSE "${work}")
function(run)
  execute_process(
    COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE output ECHO_OUTPUT_VARIABLE
  )
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed: ${command}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run("${CMAKE_COMMAND}" --install "${build}" --prefix "${work}/prefix")

# Compiles a program with the flags that pkg-config prints. If pkg-config is missing, the script
# reads the file itself.
find_program(pkg_config NAMES pkg-config pkgconf)
if(pkg_config)
  set(ENV{PKG_CONFIG_PATH} "${work}/prefix/share/pkgconfig")
  run("${pkg_config}" --exact-version=${version} penstock)
  execute_process(
    COMMAND "${pkg_config}" --cflags --libs penstock OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY
  )
  separate_arguments(flags UNIX_COMMAND "${flags}")
  run("${compiler}" -std=c++20 "${source}/installed/main.cpp" -o "${work}/by_pkg_config" ${flags})
  run("${work}/by_pkg_config")
else()
  file(READ "${work}/prefix/share/pkgconfig/penstock.pc" text)
  if(NOT text MATCHES "\nVersion: ${version}\n" OR NOT text MATCHES "\nCflags: -I[^\n]*-pthread")
    message(FATAL_ERROR "penstock.pc:\n${text}")
  endif()
endif()

run(
  "${CMAKE_COMMAND}" -S "${source}/installed" -B "${work}/build" -G "${generator}"
  "-DCMAKE_MAKE_PROGRAM=${make}" "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DBOOST_ROOT=${boost}"
  "-DCMAKE_CXX_COMPILER=${compiler}" "-Dexpected_version=${version}" "-Dcomponents=${components}"
  "-Dwith_cuda=${cuda}" "-DTorch_ROOT=${torch}" "-Dnvimgcodec_ROOT=${nvimgcodec}"
)
run("${CMAKE_COMMAND}" --build "${work}/build")
run("${CMAKE_CTEST_COMMAND}" --test-dir "${work}/build" --output-on-failure --no-tests=error)

# Tests each way to use penstock, from the working tree and without network access.
foreach(how IN ITEMS find subdirectory fetch plain)
  run(
    "${CMAKE_COMMAND}" -S "${source}/consumer" -B "${work}/${how}" -G "${generator}"
    "-DCMAKE_MAKE_PROGRAM=${make}" "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DBOOST_ROOT=${boost}"
    "-Dboost=${boost}" "-DCMAKE_CXX_COMPILER=${compiler}" "-Dhow=${how}"
    "-Dpenstock=${source}/../.." "-DFETCHCONTENT_SOURCE_DIR_PENSTOCK=${source}/../.."
    -DFETCHCONTENT_FULLY_DISCONNECTED=ON
  )
  if(output MATCHES "-- penstock: no [^\n]*")
    message(FATAL_ERROR "a project reads of an extension that it has not asked for: ${CMAKE_MATCH_0}")
  endif()
  run("${CMAKE_COMMAND}" --build "${work}/${how}" --parallel 2)
  run("${CMAKE_CTEST_COMMAND}" --test-dir "${work}/${how}" --output-on-failure --no-tests=error)
endforeach()
