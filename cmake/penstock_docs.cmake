# SPDX-License-Identifier: BSL-1.0
# The target docs builds the reference documentation in <build>/docs/html. The target is not part of
# the default build. It fails if a public name is undocumented or has no guide, or if Doxygen or
# Python is missing.
#
#   cmake -Dlog=... -P penstock_docs.cmake   runs after Doxygen and checks its warnings
cmake_policy(VERSION 3.25)

if(NOT CMAKE_SCRIPT_MODE_FILE)
  find_program(PENSTOCK_DOXYGEN doxygen DOC "Doxygen 1.9.4 or newer, for the target docs")
  mark_as_advanced(PENSTOCK_DOXYGEN)
  find_package(Python3 3.9 QUIET COMPONENTS Interpreter)
  if(PENSTOCK_DOXYGEN AND TARGET Python3::Interpreter)
    set(penstock_docs_output "${PROJECT_BINARY_DIR}/docs")
    set(scripts "${PROJECT_SOURCE_DIR}/tests/docs")
    configure_file("${PROJECT_SOURCE_DIR}/docs/Doxyfile.in" "${penstock_docs_output}/Doxyfile" @ONLY)
    add_custom_target(
      docs
      COMMAND Python3::Interpreter -B "${scripts}/promises.py" list "${PROJECT_SOURCE_DIR}" >
              "${penstock_docs_output}/tests_of_promises.md"
      COMMAND "${CMAKE_COMMAND}" -E rm -rf "${penstock_docs_output}/input"
              "${penstock_docs_output}/html"
      COMMAND Python3::Interpreter -B "${scripts}/guides.py" write "${PROJECT_SOURCE_DIR}"
              "${penstock_docs_output}/input"
      COMMAND "${PENSTOCK_DOXYGEN}" "${penstock_docs_output}/Doxyfile"
      COMMAND "${CMAKE_COMMAND}" "-Dlog=${penstock_docs_output}/warnings.log" -P
              "${CMAKE_CURRENT_LIST_FILE}"
      COMMAND Python3::Interpreter -B "${scripts}/guides.py" built "${penstock_docs_output}/html"
      COMMENT "Reference documentation: ${penstock_docs_output}/html/index.html"
      VERBATIM
    )
  else()
    add_custom_target(
      docs
      COMMAND "${CMAKE_COMMAND}" -E echo "docs: no Doxygen or no Python here (Debian: doxygen python3)"
      COMMAND "${CMAKE_COMMAND}" -E false
      VERBATIM
    )
  endif()
  return()
endif()

# ---- the warnings --------------------------------------------------------------------------------

# Names that are documented once and not repeated in every class that has them. Doxygen's own option
# WARN_AS_ERROR cannot distinguish these names from others.
set(said_elsewhere
    # the concepts dataset and adaptor: data/dataset.hpp
    "/(data|adaptors|files)/[a-z_]+\\.hpp:[0-9]+: warning: Member (size|extents|scratch_bytes|prefetch|read_chunk|view|fingerprint|origin|base_sizes)\\("
    "/(data|adaptors|files)/[a-z_]+\\.hpp:[0-9]+: warning: Member (stages|borrows) "
    # the concepts device and registering_device: device/device.hpp, memory/registered_memory.hpp
    "/(device|cuda)/(cpu|cuda)_device\\.hpp:[0-9]+: warning: Member (make_stream|make_event|record|wait|is_complete|deallocate|deallocate_pinned|unregister_memory)\\("
    # the concept batch_source: transfer/batch_source.hpp
    "/load/(any_)?loader\\.hpp:[0-9]+: warning: Member (where|device|layout|start|next|try_next|stop|at_end|stop_token)\\("
    # the policy many_producers_many_consumers: threads/batch_queue.hpp
    "/lockfree/single_producer_single_consumer\\.hpp:[0-9]+: warning: Member (ring|eventcount|is_ordered) "
    # the concept sampler: order/sampler.hpp
    "/(order|samplers)/[a-z_]+\\.hpp:[0-9]+: warning: Member (size|order)\\("
    # standard requirements: random bit generators, allocators, iterators
    "/order/random\\.hpp:[0-9]+: warning: Member (min|max)\\("
    "/memory/pinned_allocator\\.hpp:[0-9]+: warning: Member (allocate|deallocate)\\("
    "warning: Member (value_type|result_type|difference_type|iterator_concept) "
    "warning: Member operator(\\+\\+|\\*|->)\\("
    # types that the concepts require: dataset, device, batch_source
    "warning: Member (record_type|extents_type|batch_type|device_type|stream_type|stream_ref|event_type|range_type) "
    # comparison, copies, moves
    "warning: Member operator(==|=)\\("
    "warning: Member [a-z_]+\\([a-z_]+ &&[a-z]*\\)"
    # exceptions, which the library constructs and a program only reads
    "warning: Member [a-z_]*(error|mismatch|exceeded|out_of_memory|changed)\\("
    # public only because the type of a template parameter must be structural
    "/core/name\\.hpp:[0-9]+: warning: Member word[0-3] "
)

file(READ "${log}" warnings)
string(APPEND warnings "\n")
foreach(pattern IN LISTS said_elsewhere)
  string(REGEX REPLACE "[^\n]*${pattern}[^\n]* is not documented\\.\n" "" warnings "${warnings}")
endforeach()
string(STRIP "${warnings}" warnings)
if(warnings)
  message(FATAL_ERROR "docs: public names without a word, or words that Doxygen can't read:\n${warnings}")
endif()
message(STATUS "docs: every public name is documented")
