# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libtorch if libtorch 1.13 or newer is found: its headers and its
# libraries for the CPU. Installed next to penstock-config.cmake, so that this project and its users
# search in the same way.
#
# A libtorch with CUDA requires an earlier find_package(Torch), whose result is used. Otherwise,
# this file searches for the headers, because Torch's own package file stops the configuration if a
# CUDA toolkit is missing or has another version. The search covers CMAKE_PREFIX_PATH, Torch_ROOT or
# Torch_DIR (an unpacked libtorch, Debian's libtorch-dev), then the folder of the Python package
# torch.
#
#   PENSTOCK_TORCH    OFF ignores an installed libtorch

# penstock_find_libtorch(): sets penstock_torch_include_dir and the libraries in the cache.
function(penstock_find_libtorch)
  set(roots "${Torch_ROOT}" "$ENV{Torch_ROOT}")
  if(Torch_DIR)
    list(APPEND roots "${Torch_DIR}/../../..")
  endif()
  find_program(penstock_python NAMES python3)
  mark_as_advanced(penstock_python)
  # Queries the location of the package without importing it. Skipped when cross-compiling, because
  # a wheel contains libraries for the machine on which it is installed.
  if(penstock_python AND NOT CMAKE_CROSSCOMPILING)
    execute_process(
      COMMAND
        "${penstock_python}" -c
        "import importlib.util as u; s = u.find_spec('torch'); print(*s.submodule_search_locations)"
      OUTPUT_VARIABLE wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    )
    list(APPEND roots "${wheel}")
  endif()
  find_path(penstock_torch_include_dir ATen/ops/from_blob.h HINTS ${roots} PATH_SUFFIXES include)
  mark_as_advanced(penstock_torch_include_dir)
  foreach(name IN ITEMS torch_cpu c10)
    find_library(
      penstock_${name}_library ${name} HINTS "${penstock_torch_include_dir}/.." ${roots}
      PATH_SUFFIXES lib
    )
    mark_as_advanced(penstock_${name}_library)
  endforeach()
endfunction()

# Sets `problem` to the reason why the found libtorch is unusable, or to an empty string.
function(penstock_check_libtorch problem)
  set(${problem} "" PARENT_SCOPE)
  file(GLOB config "${penstock_torch_include_dir}/../share/cmake/Torch/TorchConfig.cmake")
  if(config)
    file(STRINGS "${config}" old_strings REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(old_strings)
      set(${problem} "is compiled with the strings of before C++11" PARENT_SCOPE)
      return()
    endif()
  endif()
  if(NOT DEFINED penstock_torch_links)  # libtorch may need other libraries, for example of CUDA
    set(source "${CMAKE_CURRENT_BINARY_DIR}/penstock_torch_links.cpp")
    file(WRITE "${source}" "int main() {}\n")
    try_compile(
      penstock_torch_links "${CMAKE_CURRENT_BINARY_DIR}/penstock_torch_links" "${source}"
      LINK_LIBRARIES -Wl,--no-as-needed "${penstock_torch_cpu_library}" "${penstock_c10_library}"
    )
  endif()
  if(NOT penstock_torch_links)
    set(${problem} "does not link: a library that it needs is not here" PARENT_SCOPE)
  endif()
endfunction()

if((PENSTOCK_TORCH OR NOT DEFINED PENSTOCK_TORCH) AND NOT TARGET penstock::libtorch)
  if(TARGET torch AND TORCH_LIBRARIES AND TORCH_INCLUDE_DIRS)
    add_library(penstock::libtorch INTERFACE IMPORTED GLOBAL)
    target_include_directories(penstock::libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
    target_link_libraries(penstock::libtorch INTERFACE ${TORCH_LIBRARIES})
  else()
    penstock_find_libtorch()
    if(penstock_torch_include_dir AND penstock_torch_cpu_library AND penstock_c10_library)
      penstock_check_libtorch(penstock_torch_problem)
      if(penstock_torch_problem)
        message(
          STATUS "penstock: libtorch in ${penstock_torch_include_dir} ${penstock_torch_problem}"
        )
      else()
        add_library(penstock::libtorch INTERFACE IMPORTED GLOBAL)
        target_include_directories(
          penstock::libtorch SYSTEM
          INTERFACE "${penstock_torch_include_dir}"
                    "${penstock_torch_include_dir}/torch/csrc/api/include"
        )
        target_link_libraries(
          penstock::libtorch INTERFACE "${penstock_torch_cpu_library}" "${penstock_c10_library}"
        )
      endif()
    endif()
  endif()
endif()
