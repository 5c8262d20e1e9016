# SPDX-License-Identifier: BSL-1.0
# cmake -Dtoolkit=<program> -Dstandin=<program> -Dversion=<toolkit version> -P same_facts.cmake
# fails unless both programs print the same output.
foreach(header IN ITEMS toolkit standin)
  execute_process(
    COMMAND "${${header}}" OUTPUT_VARIABLE ${header}_facts COMMAND_ERROR_IS_FATAL ANY
  )
endforeach()
# CUDA 13 has enlarged this struct; the offsets of the used members are unchanged.
if(version VERSION_LESS 13)
  foreach(header IN ITEMS toolkit standin)
    string(REGEX REPLACE "sizeof\\(cudaPointerAttributes\\) [0-9]+\n" "" ${header}_facts
                         "${${header}_facts}"
    )
  endforeach()
endif()
if(NOT toolkit_facts STREQUAL standin_facts)
  message(FATAL_ERROR "the toolkit says\n${toolkit_facts}\nthe stand-in\n${standin_facts}")
endif()
string(LENGTH "${standin_facts}" length)
if(length LESS 1000)
  message(FATAL_ERROR "too few facts:\n${standin_facts}")
endif()
