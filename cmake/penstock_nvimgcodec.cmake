# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libnvimgcodec if nvImageCodec 0.9 or newer is found: its header, the
# CUDA headers that it includes, and its library. Installed next to penstock-config.cmake, so that
# this project and its users search in the same way.
#
# The search covers nvimgcodec_ROOT and CMAKE_PREFIX_PATH (NVIDIA's package), and then the Python
# package nvidia-nvimgcodec-cu13 (or -cu12), which includes the extensions. The CUDA headers may
# come from a toolkit or from the Python package nvidia-cuda-runtime.
#
#   PENSTOCK_NVIMGCODEC    OFF ignores an installed nvImageCodec

# penstock_find_nvimgcodec(): sets the folders of the headers and the library in the cache.
function(penstock_find_nvimgcodec)
  set(roots "${nvimgcodec_ROOT}" "$ENV{nvimgcodec_ROOT}")
  find_program(penstock_python NAMES python3)
  mark_as_advanced(penstock_python)
  set(wheels)
  # Queries the location of the package without importing it. Skipped when cross-compiling, because
  # a wheel contains libraries for the machine on which it is installed.
  if(penstock_python AND NOT CMAKE_CROSSCOMPILING)
    execute_process(
      COMMAND
        "${penstock_python}" -c
        "import importlib.util as u; print(*u.find_spec('nvidia.nvimgcodec').submodule_search_locations)"
      OUTPUT_VARIABLE wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    )
    if(wheel)
      list(APPEND roots "${wheel}")
      set(wheels "${wheel}/../cu13" "${wheel}/../cuda_runtime")
    endif()
  endif()
  find_path(penstock_nvimgcodec_include_dir nvimgcodec.h HINTS ${roots} PATH_SUFFIXES include)
  mark_as_advanced(penstock_nvimgcodec_include_dir)
  find_library(
    penstock_nvimgcodec_library NAMES nvimgcodec libnvimgcodec.so.0
    HINTS "${penstock_nvimgcodec_include_dir}/.." ${roots} PATH_SUFFIXES lib64 lib .
  )
  mark_as_advanced(penstock_nvimgcodec_library)
  find_package(CUDAToolkit 12 QUIET)
  find_path(
    penstock_nvimgcodec_cuda_dir cuda_runtime_api.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${wheels}
    PATHS /usr/local/cuda PATH_SUFFIXES include
  )
  mark_as_advanced(penstock_nvimgcodec_cuda_dir)
endfunction()

if((PENSTOCK_NVIMGCODEC OR NOT DEFINED PENSTOCK_NVIMGCODEC) AND NOT TARGET penstock::libnvimgcodec)
  penstock_find_nvimgcodec()
  if(penstock_nvimgcodec_include_dir AND penstock_nvimgcodec_library
     AND penstock_nvimgcodec_cuda_dir
  )
    set(penstock_nvimgcodec_version "${penstock_nvimgcodec_include_dir}/nvimgcodec_version.h")
    file(STRINGS "${penstock_nvimgcodec_version}" penstock_nvimgcodec_version
         REGEX "define NVIMGCODEC_VER_(MAJOR|MINOR) "
    )
    string(REGEX MATCHALL "[0-9]+" penstock_nvimgcodec_version "${penstock_nvimgcodec_version}")
    list(JOIN penstock_nvimgcodec_version "." penstock_nvimgcodec_version)
    if(penstock_nvimgcodec_version VERSION_LESS 0.9)
      message(
        STATUS "penstock: nvImageCodec in ${penstock_nvimgcodec_include_dir} is older than 0.9"
      )
    else()
      add_library(penstock::libnvimgcodec INTERFACE IMPORTED GLOBAL)
      target_include_directories(
        penstock::libnvimgcodec SYSTEM INTERFACE "${penstock_nvimgcodec_include_dir}"
                                                 "${penstock_nvimgcodec_cuda_dir}"
      )
      target_link_libraries(penstock::libnvimgcodec INTERFACE "${penstock_nvimgcodec_library}")
    endif()
  endif()
endif()
