# SPDX-License-Identifier: BSL-1.0
# nlohmann-json: an installed one, else fetched. Gives nlohmann_json::nlohmann_json, or no such
# target where there is none and FETCHCONTENT_FULLY_DISCONNECTED forbids to fetch it.
find_package(nlohmann_json QUIET)
if(NOT nlohmann_json_FOUND)
  include(FetchContent)
  if(NOT FETCHCONTENT_FULLY_DISCONNECTED)
    message(STATUS "penstock: no nlohmann-json found, fetching it (Debian: nlohmann-json3-dev)")
  endif()
  # SYSTEM goes first: after the URL, CMake 3.25 takes it for a second one.
  FetchContent_Declare(
    nlohmann_json SYSTEM
    URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  )
  FetchContent_MakeAvailable(nlohmann_json)
endif()
