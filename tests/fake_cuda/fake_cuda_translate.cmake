# SPDX-License-Identifier: BSL-1.0
# fake_cuda_translate(<target> <file> <name> [<text> <instead>]...) translates the CUDA header
# <file> to C++, for <target> to include as <name>. Shared variables and <<<>>> launches become
# calls of fake_cuda/kernel.hpp; all other lines stay unchanged. For mutants, each <text> is first
# replaced by <instead>. <text> must occur in the file, so that a mutant cannot outlive the line
# that it changes.
function(fake_cuda_translate target file name)
  file(REAL_PATH "${file}" original BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
  set(out "${CMAKE_CURRENT_BINARY_DIR}/translated/${target}")
  file(READ "${original}" source)
  math(EXPR last "${ARGC} - 1")
  if(last GREATER 3)
    foreach(i RANGE 3 ${last} 2)
      math(EXPR next "${i} + 1")
      string(FIND "${source}" "${ARGV${i}}" at)
      if(at EQUAL -1)
        message(FATAL_ERROR "penstock: ${target} looks for this in ${file}:\n${ARGV${i}}")
      endif()
      string(REPLACE "${ARGV${i}}" "${ARGV${next}}" source "${source}")
    endforeach()
  endif()
  # __shared__ T name[n]; and __shared__ T name;
  string(
    REGEX REPLACE "__shared__ ([^;]*[ >])([A-Za-z_0-9]+)(\\[[^;]*\\]);"
                  "auto& \\2 = fake_cuda::shared<\\1\\3>();" source "${source}"
  )
  string(
    REGEX REPLACE "__shared__ ([^;]*[ >])([A-Za-z_0-9]+);"
                  "auto& \\2 = fake_cuda::shared<\\1>();" source "${source}"
  )
  # name<<<blocks, threads, shared, stream>>>(
  string(
    REGEX REPLACE
      "([A-Za-z_0-9:]+)<<<([^>]*)>>>\\("
      "fake_cuda::configured([](const auto&... all) { \\1(all...); }, \\2)(" source "${source}"
  )
  if(source MATCHES "__shared__ |[A-Za-z_0-9>]<<<")
    message(FATAL_ERROR "penstock: not understood in ${file}: __shared__ or <<<")
  endif()
  set(source "#line 1 \"${original}\"\n${source}")
  file(CONFIGURE OUTPUT "${out}/${name}" CONTENT "@source@" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${original}")
  target_include_directories(${target} BEFORE PRIVATE "${out}")
  target_link_libraries(${target} PRIVATE penstock_fake_cuda_kernels)
endfunction()
