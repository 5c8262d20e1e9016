# SPDX-License-Identifier: BSL-1.0
# The rooms of include/penstock, the core, have an order: a header includes headers of its own room
# and of those to the left of it. A header of an extension (include/penstock_ext) includes those of
# the core and of extensions to the left of its own. What lies in a folder `detail` is included by
# its own room alone; what other rooms and extensions may use besides the public headers lies in
# `support`. No includes go round in a circle. Fails with every include that does otherwise. Takes
# -Droot=, the folder that holds penstock/ and penstock_ext/.
cmake_minimum_required(VERSION 3.25)
set(rooms core threads observe order data device memory faults resume load transfer cuda)
set(extensions lockfree files bulk narrow report store blob image table text interop serve ranks
    search
)
foreach(extension IN LISTS extensions)
  list(APPEND rooms "ext:${extension}")
endforeach()

# room_of(<variable> <header>): its room; an umbrella's is "all".
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
  set(rank 1000)  # the core's umbrellas stand above its rooms
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

# Takes away, again and again, the headers that include none of those left: a circle stays.
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
