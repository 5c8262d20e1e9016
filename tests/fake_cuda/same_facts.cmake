# cmake -Dtoolkit=<program> -Dstandin=<program> -P same_facts.cmake: both print the same.
foreach(header IN ITEMS toolkit standin)
  execute_process(
    COMMAND "${${header}}" OUTPUT_VARIABLE ${header}_facts COMMAND_ERROR_IS_FATAL ANY
  )
endforeach()
if(NOT toolkit_facts STREQUAL standin_facts)
  message(FATAL_ERROR "the toolkit says\n${toolkit_facts}\nthe stand-in\n${standin_facts}")
endif()
string(LENGTH "${standin_facts}" length)
if(length LESS 1000)
  message(FATAL_ERROR "too few facts:\n${standin_facts}")
endif()
