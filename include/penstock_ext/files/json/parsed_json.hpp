// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

/// A JSON object or array whose end has not been reached.
struct open_json {
  nlohmann::json value = {};           ///< the content so far, without unwanted values
  std::size_t begin = 0;               ///< byte offset of the opening brace or bracket
  bool is_wanted = true;               ///< true if the value is wanted
  std::string key = {};                ///< key of the current member, or "" in an array
  std::set<std::string> members = {};  ///< keys of the wanted members so far
};

/// SAX event handler of `parsed_json` for nlohmann-json. Needs O(n log n) time for n bytes. In
/// contrast, nlohmann-json's own parser with a callback visits all values of an object or array
/// whenever a nested object ends.
template <class Reject, class Ended, class Wanted>
struct json_events {
  using json = nlohmann::json;

  std::istringstream in;
  const Reject& reject;
  const Ended& ended;
  const Wanted& wanted;
  std::vector<open_json> open = {};
  json whole = {};

  bool null() { return add(nullptr, last_read()); }
  bool boolean(bool value) { return add(value, last_read()); }
  bool number_integer(std::int64_t value) { return add(value, last_read()); }
  bool number_unsigned(std::uint64_t value) { return add(value, last_read()); }
  bool number_float(double value, const std::string&) { return add(value, last_read()); }
  bool string(std::string& value) { return add(std::move(value), last_read()); }
  bool binary(json::binary_t&) { return false; }  // only in binary formats
  bool start_object(std::size_t) { return start(json::object()); }
  bool start_array(std::size_t) { return start(json::array()); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& name) {
    open_json& of = open.back();
    of.key = std::move(name);
    if (is_wanted() && !of.members.insert(of.key).second) {
      reject(last_read(), "every member once", "a second \"" + of.key + '"');
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const json::exception& error) {
    const std::string problem = error.what();  // starts with "[json.exception.parse_error.101] "
    reject(position - (std::min)(position, std::size_t{1}), "JSON",
           problem.substr((std::min)(problem.find("] ") + 2, problem.size())));
    return false;
  }

 private:
  // Returns true if the current value is wanted.
  [[nodiscard]] bool is_wanted() const {
    return open.empty() || (open.back().is_wanted && wanted(open));
  }
  [[nodiscard]] std::size_t last_read() {
    const auto read = in.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in);
    return static_cast<std::size_t>((std::max)(std::streamoff{read}, std::streamoff{1})) - 1;
  }
  bool start(json value) {
    constexpr std::size_t deepest = 64;
    if (open.size() == deepest) {
      reject(last_read(), "objects and arrays nested at most 64 deep", "deeper nesting");
    }
    const bool is_kept = is_wanted();
    open.push_back({.value = std::move(value), .begin = last_read(), .is_wanted = is_kept});
    return true;
  }
  bool end() {
    open_json one = std::move(open.back());
    open.pop_back();
    return add(std::move(one.value), one.begin);
  }
  bool add(json value, std::size_t begin) {
    if (!is_wanted()) return true;
    const bool is_member = open.size() == 1 && open.front().value.is_object();
    if ((value.is_object() || is_member) && !ended(value, begin, std::as_const(open))) return true;
    if (open.empty()) {
      whole = std::move(value);
    } else if (open.back().value.is_array()) {
      open.back().value.push_back(std::move(value));
    } else {
      open.back().value.emplace(open.back().key, std::move(value));
    }
    return true;
  }
};

/// Accepts all values (see `parsed_json`).
struct all_wanted {
  bool operator()(const std::vector<open_json>&) const noexcept { return true; }
};

/// Parses a JSON text with nlohmann-json, which must be installed. The callbacks are:
///
/// - `ended(value, begin, around)` is called for each complete object, and for each other member of
///   the top-level object. `begin` is the offset at which an object or array begins. For other
///   values, `begin` is an offset not after the end of the value. `around` contains the enclosing
///   values, outermost first. If `ended` returns false, the value is omitted from the result.
/// - `wanted(around)` returns true if the next value is wanted. Unwanted values use no memory, are
///   not passed to `ended`, and are not checked for duplicate members.
/// - `reject(offset, expected, found)` must throw. The parser calls `reject` if the text is not
///   JSON, has a duplicate member, or is nested deeper than 64 levels.
template <class Reject, class Ended, class Wanted = all_wanted>
[[nodiscard]] nlohmann::json parsed_json(std::string_view text, const Reject& reject,
                                         const Ended& ended, const Wanted& wanted = {}) {
  json_events<Reject, Ended, Wanted> events{.in = std::istringstream{std::string{text}},
                                            .reject = reject,
                                            .ended = ended,
                                            .wanted = wanted};
  nlohmann::json::sax_parse(events.in, &events);
  // nlohmann-json treats a NUL as the end of the text.
  const std::size_t zero = text.find('\0');
  if (zero != text.npos) reject(zero, "JSON", "a zero byte");
  return std::move(events.whole);
}
}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
