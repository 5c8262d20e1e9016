# SPDX-License-Identifier: BSL-1.0
# Finds Arrow's and Parquet's C++ libraries and leaves the target penstock::arrow; leaves none
# otherwise. Installed beside penstock-config.cmake: this project and those that use it look in the
# same way.
#
# Arrow's own CMake packages count; where there are none, the libraries and headers in the Python
# package pyarrow, which has no CMake package. A program that loads both, this and another version,
# has two of them: use one.
#
#   PENSTOCK_PARQUET    OFF: as if there were no Arrow

# Leaves the folder of pyarrow and its two libraries in the caller's scope, or none.
function(penstock_find_pyarrow)
  find_program(penstock_python NAMES python3)
  mark_as_advanced(penstock_python)
  set(wheel "")
  # Asks where the package is, and does not import it. A wheel is for the machine it is on.
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
  foreach(name IN ITEMS parquet arrow)  # whose names end in a version
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
