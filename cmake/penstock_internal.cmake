# SPDX-License-Identifier: BSL-1.0
# Targets for this project's tests, benchmarks and examples. Users of the library do not see these
# targets.

add_library(penstock_warnings INTERFACE)
target_compile_options(
  penstock_warnings
  INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow
            # gcc 12 reports a nonexistent overlap in "literal" + std::string (GCC bug 105651).
            $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
            $<$<BOOL:${PENSTOCK_WARNINGS_AS_ERRORS}>:-Werror>
)

add_library(penstock_native INTERFACE)
target_compile_options(penstock_native INTERFACE $<$<BOOL:${PENSTOCK_NATIVE}>:-march=native>)

# The target that every program of this project links: the library, all components whose libraries
# are installed, and warnings.
add_library(penstock_program INTERFACE)
target_link_libraries(penstock_program INTERFACE penstock::penstock penstock_warnings)
foreach(component IN ITEMS ${penstock_plain_extensions} cache gzip http jpeg json_lines lockfree mds png safetensors search
                            zstd
)
  if(TARGET penstock::${component})
    target_link_libraries(penstock_program INTERFACE penstock::${component})
  endif()
endforeach()

# True if the whole build is a checked build.
set(penstock_is_checked FALSE)
if(PENSTOCK_CHECKED STREQUAL "AUTO")
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(penstock_is_checked TRUE)
  endif()
elseif(PENSTOCK_CHECKED)
  set(penstock_is_checked TRUE)
endif()
