# penstock_mutant(<target> <header> <text> <instead>): lets <target> compile with a copy of one
# public header in which every <text> is replaced. For tests that must notice that a line is
# missing. The text has to be there, so that a mutant can't outlive the line that it leaves out.
function(penstock_mutant target header text instead)
  set(original "${PROJECT_SOURCE_DIR}/include/${header}")
  set(out "${CMAKE_CURRENT_BINARY_DIR}/mutants/${target}")
  file(READ "${original}" source)
  string(FIND "${source}" "${text}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "penstock: the mutant ${target} looks for this in ${header}:\n${text}")
  endif()
  string(REPLACE "${text}" "${instead}" source "${source}")
  file(CONFIGURE OUTPUT "${out}/${header}" CONTENT "@source@" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${original}")
  target_include_directories(${target} BEFORE PRIVATE "${out}")
endfunction()
