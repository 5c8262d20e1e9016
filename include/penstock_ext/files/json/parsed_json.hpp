// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <ios>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An object or array that a JSON text has begun and not ended.
struct open_json {
  std::size_t begin = 0;               ///< the byte of its brace or bracket
  std::string key = {};                ///< of the member that is read; "" in an array
  std::set<std::string> members = {};  ///< all keys up to now
};

/// Parses a JSON text by nlohmann-json, which must be there. `ended(value, begin, around)` gets each
/// object when it is whole, with the byte it begins at and what it lies in, outermost first; the
/// parsed text does not have those for which it returns false. `refuse(offset, expected, found)`
/// throws: for what is no JSON, a member that an object has twice, and what is nested deeper than
/// 64.
template <class Refuse, class Ended>
[[nodiscard]] nlohmann::ordered_json parsed_json(std::string_view text, const Refuse& refuse,
                                                 const Ended& ended) {
  using json = nlohmann::ordered_json;
  constexpr std::size_t deepest = 64;
  std::istringstream in{std::string{text}};
  const auto last_read = [&] {
    const auto read = in.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in);
    return static_cast<std::size_t>(std::max<std::streamoff>(read, 1)) - 1;
  };
  std::vector<open_json> open;
  const auto note = [&](int, json::parse_event_t event, json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (open.size() == deepest) {
          refuse(last_read(), "at most 64 objects and arrays in each other", "more");
        }
        open.push_back({.begin = last_read()});
        return true;
      case json::parse_event_t::key:
        open.back().key = value.template get<std::string>();
        if (!open.back().members.insert(open.back().key).second) {
          refuse(last_read(), "every member once", "a second \"" + open.back().key + '"');
        }
        return true;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end: {
        const std::size_t begin = open.back().begin;
        open.pop_back();
        return event == json::parse_event_t::array_end || ended(value, begin, std::as_const(open));
      }
      default:
        return true;
    }
  };
  std::size_t offset = 0;
  std::string problem;
  try {
    return json::parse(in, note);
  } catch (const json::parse_error& error) {
    offset = (std::min)(error.byte - (std::min)(error.byte, std::size_t{1}), text.size());
    problem = error.what();
  } catch (const json::exception& error) {
    offset = last_read();
    problem = error.what();
  }
  // It begins with "[json.exception.parse_error.101] ".
  refuse(offset, "JSON", problem.substr((std::min)(problem.find("] ") + 2, problem.size())));
  return {};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
