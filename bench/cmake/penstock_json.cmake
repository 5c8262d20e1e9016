# SPDX-License-Identifier: BSL-1.0
# Finds an installed nlohmann-json or fetches one. Defines nlohmann_json::nlohmann_json, except if
# no copy is installed and FETCHCONTENT_FULLY_DISCONNECTED forbids fetching.
find_package(nlohmann_json QUIET)
if(NOT nlohmann_json_FOUND)
  include(FetchContent)
  if(NOT FETCHCONTENT_FULLY_DISCONNECTED)
    message(STATUS "penstock: no nlohmann-json found, fetching it (Debian: nlohmann-json3-dev)")
  endif()
  # SYSTEM must come first, because CMake 3.25 would parse it as a second URL after the URL.
  FetchContent_Declare(
    nlohmann_json SYSTEM
    URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  )
  FetchContent_MakeAvailable(nlohmann_json)
endif()
