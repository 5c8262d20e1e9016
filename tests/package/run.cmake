# The test: cmake -Dbuild=<penstock's build tree> -Dsource=<this folder> -Dwork=<scratch>
#   -Dgenerator=... -Dmake=... -Dboost=<the headers' folder> -Dcompiler=... -Dversion=... -Dgzip=ON|OFF -Dcuda=ON|OFF -P run.cmake
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
  "${CMAKE_COMMAND}" -S "${source}" -B "${work}/build" -G "${generator}"
  "-DCMAKE_MAKE_PROGRAM=${make}" "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DBOOST_ROOT=${boost}"
  "-DCMAKE_CXX_COMPILER=${compiler}" "-Dexpected_version=${version}" "-Dwith_gzip=${gzip}"
  "-Dwith_cuda=${cuda}"
)
run("${CMAKE_COMMAND}" --build "${work}/build")
run("${CMAKE_CTEST_COMMAND}" --test-dir "${work}/build" --output-on-failure)
