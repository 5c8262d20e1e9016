# SPDX-License-Identifier: BSL-1.0
# The test: cmake -Dbuild=<penstock's build tree> -Dsource=<this folder> -Dwork=<scratch>
#   -Dgenerator=... -Dmake=... -Dboost=<the headers' folder> -Dcompiler=... -Dversion=...
#   -Dcomponents=<cache,gzip,http,jpeg,lockfree,mds,nvimgcodec,png,safetensors,search,torch,zstd> -Dcuda=ON|OFF
#   -Dtorch=<libtorch's folder> -Dnvimgcodec=<nvImageCodec's folder> -P run.cmake
file(REMOVE_RECURSE "${work}")
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed: ${command}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" --install "${build}" --prefix "${work}/prefix")
run(
  "${CMAKE_COMMAND}" -S "${source}/installed" -B "${work}/build" -G "${generator}"
  "-DCMAKE_MAKE_PROGRAM=${make}" "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DBOOST_ROOT=${boost}"
  "-DCMAKE_CXX_COMPILER=${compiler}" "-Dexpected_version=${version}" "-Dcomponents=${components}"
  "-Dwith_cuda=${cuda}" "-DTorch_ROOT=${torch}" "-Dnvimgcodec_ROOT=${nvimgcodec}"
)
run("${CMAKE_COMMAND}" --build "${work}/build")
run("${CMAKE_CTEST_COMMAND}" --test-dir "${work}/build" --output-on-failure --no-tests=error)

# The ways to penstock, from the working tree and without the network.
foreach(how IN ITEMS find subdirectory fetch plain)
  run(
    "${CMAKE_COMMAND}" -S "${source}/consumer" -B "${work}/${how}" -G "${generator}"
    "-DCMAKE_MAKE_PROGRAM=${make}" "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DBOOST_ROOT=${boost}"
    "-Dboost=${boost}" "-DCMAKE_CXX_COMPILER=${compiler}" "-Dhow=${how}"
    "-Dpenstock=${source}/../.." "-DFETCHCONTENT_SOURCE_DIR_PENSTOCK=${source}/../.."
    -DFETCHCONTENT_FULLY_DISCONNECTED=ON
  )
  run("${CMAKE_COMMAND}" --build "${work}/${how}" --parallel 2)
  run("${CMAKE_CTEST_COMMAND}" --test-dir "${work}/${how}" --output-on-failure --no-tests=error)
endforeach()
