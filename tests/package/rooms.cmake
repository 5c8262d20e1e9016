# SPDX-License-Identifier: BSL-1.0
# Checks the include order of the rooms (folders) of include/penstock, the core. A header may
# include headers of its own room and of the rooms to the left of it. A header of an extension
# (include/penstock_ext) may include headers of the core and of the extensions to the left of it.
# Headers in a folder `detail` may be included only within their own room. Headers in `support` are
# for other rooms and extensions. Includes must not have cycles. The script fails and prints every
# include that breaks a rule. -Droot= is the folder that contains penstock/ and penstock_ext/.
cmake_minimum_required(VERSION 3.25)
set(rooms core threads observe order data device memory faults resume load transfer cuda)
set(extensions lockfree results samplers signals quarantine files adaptors bulk narrow report store
    blob image table text indexed audio interop intake streamed serve ranks search
)
foreach(extension IN LISTS extensions)
  list(APPEND rooms "ext:${extension}")
endforeach()

# room_of(<variable> <header>): returns the room of a header, or "all" for an umbrella header.
function(room_of variable header)
  set(room all)
  if(header MATCHES "^penstock/([^/]+)/")
    set(room "${CMAKE_MATCH_1}")
  elseif(header MATCHES "^penstock_ext/([^/.]+)[/.]")
    set(room "ext:${CMAKE_MATCH_1}")
  endif()
  set(${variable} "${room}" PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE headers RELATIVE "${root}" "${root}/penstock/*.hpp" "${root}/penstock/*.cuh"
     "${root}/penstock_ext/*.hpp" "${root}/penstock_ext/*.cuh"
)
if(NOT headers)
  message(FATAL_ERROR "rooms: no headers below ${root}/penstock")
endif()
set(problems "")
foreach(header IN LISTS headers)
  room_of(room "${header}")
  set(rank 1000)  # umbrella headers of the core come after all rooms
  if(NOT room STREQUAL "all")
    list(FIND rooms "${room}" rank)
    if(rank EQUAL -1)
      string(APPEND problems "  ${header}: '${room}' is no room of tests/package/rooms.cmake\n")
    endif()
  endif()
  file(STRINGS "${root}/${header}" lines REGEX "^#include <penstock(_ext)?/")
  list(TRANSFORM lines REPLACE "^#include <([^>]+)>.*$" "\\1" OUTPUT_VARIABLE included)
  set("includes_of_${header}" ${included})
  foreach(other IN LISTS included)
    room_of(other_room "${other}")
    set(other_rank 1000)
    if(NOT other_room STREQUAL "all")
      list(FIND rooms "${other_room}" other_rank)
    endif()
    if(NOT EXISTS "${root}/${other}")
      string(APPEND problems "  ${header} includes ${other}, which is not there\n")
    elseif(other_rank GREATER rank)
      string(APPEND problems "  ${header} includes ${other}, a room to the right of its own\n")
    elseif(room STREQUAL "all" AND other MATCHES "^penstock_ext/")
      string(APPEND problems "  ${header} includes ${other}, which is no part of the core\n")
    elseif(other MATCHES "/detail/" AND NOT other_room STREQUAL room)
      string(APPEND problems "  ${header} includes ${other}, a detail of another room\n")
    endif()
  endforeach()
endforeach()

# Repeatedly removes the headers that include none of the remaining headers. Only headers in cycles
# remain.
set(left ${headers})
set(before -1)
list(LENGTH left count)
while(count GREATER 0 AND NOT count EQUAL before)
  set(before ${count})
  set(next "")
  foreach(header IN LISTS left)
    foreach(other IN LISTS "includes_of_${header}")
      if(other IN_LIST left)
        list(APPEND next "${header}")
        break()
      endif()
    endforeach()
  endforeach()
  set(left ${next})
  list(LENGTH left count)
endwhile()
if(left)
  list(JOIN left "\n    " left)
  string(APPEND problems "  a circle runs through some of\n    ${left}\n")
endif()

if(problems)
  list(JOIN rooms " " rooms)
  message(FATAL_ERROR "rooms, from left to right: ${rooms}\n${problems}")
endif()
