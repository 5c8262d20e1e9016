# SPDX-License-Identifier: BSL-1.0
# Tests the recipes without their tools and without the network. The portfile runs with stand-ins
# for vcpkg's functions. If Python is installed, the conanfile runs with stand-ins for Conan's
# classes.
#   cmake -Droot=<the repository> -Dwork=<scratch> -Dgenerator=... -Dmake=... -Dboost=<the headers'
#   folder> -Dcompiler=... -Dversion=... -Dcomponents=<cache,gzip,http,jpeg,json_lines,lockfree,mds,png,zstd> -P recipes.cmake
cmake_policy(VERSION 3.25)
file(REMOVE_RECURSE "${work}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "failed: ${command}")
  endif()
endfunction()

function(must_exist)
  foreach(path IN LISTS ARGN)
    if(NOT EXISTS "${path}")
      message(FATAL_ERROR "the recipe leaves no ${path}")
    endif()
  endforeach()
endfunction()

# ---- one version in all places -----------------------------------------------------------------

set(port "${root}/packaging/vcpkg")
file(READ "${port}/vcpkg.json" manifest)
# Checks the syntax, because a broken file ends the script here.
string(JSON name GET "${manifest}" name)
string(JSON port_version GET "${manifest}" version)
if(NOT name STREQUAL "penstock" OR NOT port_version STREQUAL version)
  message(FATAL_ERROR "vcpkg.json says ${name} ${port_version}, the headers penstock ${version}")
endif()

# ---- vcpkg: the portfile, with and without components ---------------------------------------------

function(vcpkg_check_features)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_FEATURE_OPTIONS" "FEATURES;INVERTED_FEATURES")
  set(result)
  foreach(kind IN ITEMS FEATURES INVERTED_FEATURES)
    while(arg_${kind})
      list(POP_FRONT arg_${kind} feature option)
      string(JSON known ERROR_VARIABLE error GET "${manifest}" features ${feature} description)
      if(error)
        message(FATAL_ERROR "vcpkg.json knows no feature ${feature} that the portfile asks for")
      endif()
      set(value OFF)
      if((feature IN_LIST features) STREQUAL (kind STREQUAL "FEATURES"))
        set(value ON)
      endif()
      list(APPEND result "-D${option}=${value}")
    endwhile()
  endforeach()
  set(${arg_OUT_FEATURE_OPTIONS} "${result}" PARENT_SCOPE)
endfunction()

function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  # vcpkg must download nothing while a port builds.
  run(
    "${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${build}" -G "${generator}"
    "-DCMAKE_MAKE_PROGRAM=${make}" "-DCMAKE_CXX_COMPILER=${compiler}" "-DBOOST_ROOT=${boost}"
    "-DCMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" -DCMAKE_INSTALL_LIBDIR=lib
    -DFETCHCONTENT_FULLY_DISCONNECTED=ON --no-warn-unused-cli --log-level=NOTICE ${arg_OPTIONS}
  )
endfunction()

function(vcpkg_cmake_install)
  run("${CMAKE_COMMAND}" --build "${build}" --target install)
endfunction()

function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
  must_exist("${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/penstock-config.cmake")
  file(MAKE_DIRECTORY "${CURRENT_PACKAGES_DIR}/share")
  file(RENAME "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}" "${CURRENT_PACKAGES_DIR}/share/penstock")
endfunction()

function(vcpkg_fixup_pkgconfig)
  must_exist("${CURRENT_PACKAGES_DIR}/share/pkgconfig/penstock.pc")
endfunction()

function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  must_exist(${arg_FILE_LIST})
  file(COPY_FILE ${arg_FILE_LIST} "${CURRENT_PACKAGES_DIR}/share/penstock/copyright")
endfunction()

function(check_port features)
  set(build "${work}/port_build")
  set(CURRENT_PORT_DIR "${port}")
  set(CURRENT_PACKAGES_DIR "${work}/port")
  file(REMOVE_RECURSE "${build}" "${CURRENT_PACKAGES_DIR}")
  include("${port}/portfile.cmake")

  set(package "${CURRENT_PACKAGES_DIR}/share/penstock")
  must_exist(
    "${CURRENT_PACKAGES_DIR}/include/penstock/penstock.hpp" "${package}/penstock-config.cmake"
    "${package}/penstock-config-version.cmake" "${package}/penstock.cpp" "${package}/penstock_cuda.cpp"
    "${package}/copyright"
  )
  # vcpkg rejects a package with folders other than include and share, or with an empty folder.
  file(GLOB left RELATIVE "${CURRENT_PACKAGES_DIR}" "${CURRENT_PACKAGES_DIR}/*")
  if(NOT left STREQUAL "include;share")
    message(FATAL_ERROR "the port leaves ${left}, not just include and share")
  endif()
  foreach(component IN ITEMS audio hdf5 nvimgcodec parquet torch webp)
    if(EXISTS "${package}/penstock-${component}-targets.cmake")
      message(FATAL_ERROR "the port has ${component}, which it does not declare")
    endif()
  endforeach()
  foreach(component IN ITEMS cache gzip http jpeg json_lines lockfree mds png zstd)
    string(REPLACE "_" "-" feature ${component})  # vcpkg permits no underscore
    set(has FALSE)
    if(EXISTS "${package}/penstock-${component}-targets.cmake")
      set(has TRUE)
    endif()
    set(wanted FALSE)
    if(feature IN_LIST features)
      set(wanted TRUE)
    endif()
    if(NOT has STREQUAL wanted)
      message(FATAL_ERROR "the port with the features '${features}': ${component} is ${has}")
    endif()
  endforeach()
  message(STATUS "vcpkg port, features '${features}': fine")
endfunction()

check_port("")
string(REPLACE "," ";" components "${components}")
string(REPLACE "_" "-" components "${components}")
if(components)
  check_port("${components}")
endif()

# ---- Conan --------------------------------------------------------------------------------------

find_program(python NAMES python3)
if(python)
  run(
    "${CMAKE_COMMAND}" -E env PYTHONDONTWRITEBYTECODE=1 "${python}"
    "${CMAKE_CURRENT_LIST_DIR}/conan_recipe.py" "${root}" "${version}"
  )
else()
  message(STATUS "conanfile.py: not checked, no python3 here")
endif()
