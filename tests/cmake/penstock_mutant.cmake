# SPDX-License-Identifier: BSL-1.0
# penstock_header_path(<variable> <header>): where a header lies in include/; one of the core is
# named from its room on.
function(penstock_header_path variable header)
  if(NOT header MATCHES "^penstock(_ext)?/")
    set(header "penstock/${header}")
  endif()
  set(${variable} "${header}" PARENT_SCOPE)
endfunction()

# penstock_mutant(<target> <header> <text> <instead>): lets <target> compile with a copy of one
# public header in which every <text> is replaced. For tests that must notice that a line is
# missing. The text has to be there, so that a mutant can't outlive the line that it leaves out.
function(penstock_mutant target header text instead)
  set(original "${PROJECT_SOURCE_DIR}/include/${header}")
  file(READ "${original}" source)
  string(FIND "${source}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "penstock: the mutant ${target} looks for this in ${header}:\n${text}")
  endif()
  string(REPLACE "${text}" "${instead}" source "${source}")
  penstock_mutant_copy(${target} "${header}" "${source}")
endfunction()

# penstock_mutant_copy(<target> <header> <source>): <target> compiles with this text of the header.
function(penstock_mutant_copy target header source)
  set(out "${CMAKE_CURRENT_BINARY_DIR}/mutants/${target}")
  file(CONFIGURE OUTPUT "${out}/${header}" CONTENT "@source@" @ONLY)
  set_property(
    DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/${header}"
  )
  target_include_directories(${target} BEFORE PRIVATE "${out}")
endfunction()

# penstock_mutant_switch(<target> <header> <text> <instead> <number>): the copy of the header that
# <target> compiles with runs <instead> for <text> while `left_out` is a number of its own, which it
# sets <number> to. Any number of them share one build (mutant schemata: Untch, Offutt and Harrold,
# 1993). <text> is one statement or several, without a declaration that is used after them.
function(penstock_mutant_switch target header text instead number)
  get_property(count TARGET ${target} PROPERTY switches)
  if(NOT count)
    set(count 0)
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/mutants/${target}/left_out.hpp"
         CONTENT "#pragma once\ninline int left_out = 0;\n" @ONLY
    )
    target_compile_options(
      ${target} PRIVATE -include "${CMAKE_CURRENT_BINARY_DIR}/mutants/${target}/left_out.hpp"
    )
  endif()
  math(EXPR count "${count} + 1")
  set_property(TARGET ${target} PROPERTY switches ${count})
  set(${number} ${count} PARENT_SCOPE)

  get_property(source TARGET ${target} PROPERTY "source:${header}")
  if(NOT source)
    file(READ "${PROJECT_SOURCE_DIR}/include/${header}" source)
  endif()
  string(FIND "${source}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "penstock: a mutant of ${target} looks for this in ${header}:\n${text}")
  endif()
  string(REPLACE "${text}" "if (left_out == ${count}) { ${instead} } else { ${text} }" source "${source}")
  set_property(TARGET ${target} PROPERTY "source:${header}" "${source}")
  penstock_mutant_copy(${target} "${header}" "${source}")
endfunction()
