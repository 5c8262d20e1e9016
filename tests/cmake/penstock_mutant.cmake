# SPDX-License-Identifier: BSL-1.0
# Builds targets with modified copies of public headers, for tests that must detect the change. The
# text to change must exist in the header, so editing that line also requires updating the mutant. A
# header of the core is named by its path below penstock/.

# penstock_edit(<target> <header> <text> <instead>): compiles <target> with a copy of a public
# header in which every <text> is replaced by <instead>.
function(penstock_edit target header text instead)
  if(NOT header MATCHES "^penstock(_ext)?/")
    set(header "penstock/${header}")
  endif()
  get_property(source TARGET ${target} PROPERTY "source:${header}")
  if(NOT source)
    set(original "${PROJECT_SOURCE_DIR}/include/${header}")
    file(READ "${original}" source)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${original}")
    get_property(edited TARGET ${target} PROPERTY edited)
    if(NOT edited)
      target_include_directories(
        ${target} BEFORE PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/edited/${target}"
      )
      # Writes the headers only once, after the last edit, because each write causes a rebuild.
      cmake_language(EVAL CODE "cmake_language(DEFER CALL penstock_write_edited ${target})")
    endif()
    set_property(TARGET ${target} APPEND PROPERTY edited "${header}")
  endif()
  string(FIND "${source}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "penstock: ${target} looks for this in ${header}:\n${text}")
  endif()
  string(REPLACE "${text}" "${instead}" source "${source}")
  set_property(TARGET ${target} PROPERTY "source:${header}" "${source}")
endfunction()

function(penstock_write_edited target)
  get_property(edited TARGET ${target} PROPERTY edited)
  foreach(header IN LISTS edited)
    get_property(source TARGET ${target} PROPERTY "source:${header}")
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/edited/${target}/${header}" CONTENT "@source@"
         @ONLY
    )
  endforeach()
endfunction()

# penstock_is_left_out(<target> <test> <variable>): sets <variable> to a condition for the source of
# <target>. The condition is true only in the test <test>, which sets an environment variable. A
# single build can therefore contain any number of mutants (mutant schemata: Untch, Offutt and
# Harrold, 1993).
function(penstock_is_left_out target test variable)
  get_property(number TARGET ${target} PROPERTY mutants)
  if(NOT number)
    set(number 0)
    set(header "${CMAKE_CURRENT_BINARY_DIR}/edited/${target}/left_out.hpp")
    file(CONFIGURE OUTPUT "${header}" CONTENT "#pragma once
#include <cstdlib>
inline const int left_out = [] {
  const char* const number = std::getenv(\"PENSTOCK_LEFT_OUT\");
  return number == nullptr ? 0 : std::atoi(number);
}();
"   @ONLY)
    target_compile_options(${target} PRIVATE -include "${header}")
  endif()
  math(EXPR number "${number} + 1")
  set_property(TARGET ${target} PROPERTY mutants ${number})
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT PENSTOCK_LEFT_OUT=${number})
  set(${variable} "(left_out == ${number})" PARENT_SCOPE)
endfunction()

# penstock_mutant(<target> <test> [<header> <text> <instead>]...): in the test <test>, <target> runs
# each <instead> in place of its <text>. A <text> is an expression, or whole statements without a
# declaration that later code uses. An <instead> that contains LEFT_OUT replaces <text> in all
# tests; LEFT_OUT is a condition that is true only in <test>.
function(penstock_mutant target test)
  penstock_is_left_out(${target} ${test} is_left_out)
  set(i 2)
  while(i LESS ARGC)
    math(EXPR of_text "${i} + 1")
    math(EXPR of_instead "${i} + 2")
    set(text "${ARGV${of_text}}")
    set(instead "${ARGV${of_instead}}")
    if(instead MATCHES "LEFT_OUT")
      string(REPLACE "LEFT_OUT" "${is_left_out}" instead "${instead}")
    elseif(text MATCHES "[;}][ \n]*$")
      set(instead "if ${is_left_out} { ${instead} } else { ${text} }")
    else()
      set(instead "(${is_left_out} ? ${instead} : ${text})")
    endif()
    penstock_edit(${target} "${ARGV${i}}" "${text}" "${instead}")
    math(EXPR i "${i} + 3")
  endwhile()
endfunction()
