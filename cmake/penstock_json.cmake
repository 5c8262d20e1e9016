# nlohmann-json: an installed one, else fetched. Gives nlohmann_json::nlohmann_json.
find_package(nlohmann_json QUIET)
if(NOT nlohmann_json_FOUND)
  include(FetchContent)
  message(STATUS "penstock: no nlohmann-json found, fetching it (Debian: nlohmann-json3-dev)")
  FetchContent_Declare(
    nlohmann_json
    URL https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
    SYSTEM
  )
  FetchContent_MakeAvailable(nlohmann_json)
endif()
