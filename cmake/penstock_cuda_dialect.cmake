# SPDX-License-Identifier: BSL-1.0
# Makes nvcc compile the .cu files of all targets that link penstock::penstock as C++20. CMake
# already applies the feature cxx_std_20 to these files, with the two exceptions below. Installed
# next to penstock-config.cmake.

# CMake 3.25.0 and 3.25.1 do not know nvcc's flag for C++20. They reject the target or compile it as
# C++17. The flag is stored in the cache, because any folder of a project may contain such a target.
if(CMAKE_VERSION VERSION_LESS 3.25.2)
  foreach(kind IN ITEMS STANDARD EXTENSION)
    set(CMAKE_CUDA20_${kind}_COMPILE_OPTION -std=c++20 CACHE INTERNAL "nvcc's flag for C++20")
  endforeach()
endif()

# A target keeps its own CUDA_STANDARD, such as 17 from CMAKE_CUDA_STANDARD. The feature cuda_std_20
# raises the standard. CMake accepts the feature only if the language CUDA is enabled.
if(CMAKE_CUDA_COMPILER_LOADED)
  get_target_property(penstock_real_target penstock::penstock ALIASED_TARGET)
  if(CMAKE_VERSION VERSION_LESS 3.25.2)  # these two versions do not know the feature either
    foreach(list IN ITEMS CMAKE_CUDA_COMPILE_FEATURES CMAKE_CUDA20_COMPILE_FEATURES)
      list(APPEND ${list} cuda_std_20)
      if(penstock_real_target)  # penstock is a subdirectory of the project that defines the targets
        set(${list} "${${list}}" PARENT_SCOPE)
      endif()
    endforeach()
  endif()
  if(NOT penstock_real_target)
    set(penstock_real_target penstock::penstock)
  endif()
  set(penstock_standard "$<TARGET_PROPERTY:CUDA_STANDARD>")
  target_compile_features(
    ${penstock_real_target}
    INTERFACE
      $<BUILD_INTERFACE:$<$<AND:$<BOOL:${penstock_standard}>,$<VERSION_LESS:${penstock_standard},20>>:cuda_std_20>>
  )
endif()
