# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::arrow if the C++ libraries of Arrow and Parquet are found. Installed
# next to penstock-config.cmake, so that this project and its users search in the same way.
#
# Arrow's own CMake packages are preferred. Otherwise, the libraries and headers come from the
# Python package pyarrow, which has no CMake package. A program must not load both pyarrow's
# libraries and another version, because it would have two copies of Arrow.
#
#   PENSTOCK_PARQUET    OFF ignores an installed Arrow

# Sets the folder of pyarrow and its two libraries in the caller's scope if pyarrow is found.
function(penstock_find_pyarrow)
  find_program(penstock_python NAMES python3)
  mark_as_advanced(penstock_python)
  set(wheel "")
  # Queries the location of the package without importing it. Skipped when cross-compiling, because
  # a wheel contains libraries for the machine on which it is installed.
  if(penstock_python AND NOT CMAKE_CROSSCOMPILING)
    execute_process(
      COMMAND
        "${penstock_python}" -c
        "import importlib.util as u; s = u.find_spec('pyarrow'); print(*s.submodule_search_locations)"
      OUTPUT_VARIABLE wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    )
  endif()
  find_path(penstock_arrow_include_dir parquet/arrow/reader.h HINTS ${wheel} PATH_SUFFIXES include)
  mark_as_advanced(penstock_arrow_include_dir)
  foreach(name IN ITEMS parquet arrow)  # the library names end in a version
    file(GLOB found "${penstock_arrow_include_dir}/../lib${name}.so.*")
    list(FILTER found INCLUDE REGEX "/lib${name}\\.so\\.[0-9]+$")
    set(penstock_${name}_library "${found}" PARENT_SCOPE)
  endforeach()
endfunction()

if((PENSTOCK_PARQUET OR NOT DEFINED PENSTOCK_PARQUET) AND NOT TARGET penstock::arrow)
  find_package(Arrow CONFIG QUIET)
  find_package(Parquet CONFIG QUIET)
  foreach(kind IN ITEMS shared static)
    if(TARGET Arrow::arrow_${kind} AND TARGET Parquet::parquet_${kind} AND NOT TARGET penstock::arrow)
      add_library(penstock::arrow INTERFACE IMPORTED GLOBAL)
      target_link_libraries(
        penstock::arrow INTERFACE Parquet::parquet_${kind} Arrow::arrow_${kind}
      )
    endif()
  endforeach()
  if(NOT TARGET penstock::arrow)
    penstock_find_pyarrow()
    if(penstock_arrow_include_dir AND penstock_parquet_library AND penstock_arrow_library)
      add_library(penstock::arrow INTERFACE IMPORTED GLOBAL)
      target_include_directories(penstock::arrow SYSTEM INTERFACE "${penstock_arrow_include_dir}")
      target_link_libraries(
        penstock::arrow INTERFACE "${penstock_parquet_library}" "${penstock_arrow_library}"
      )
    endif()
  endif()
endif()
