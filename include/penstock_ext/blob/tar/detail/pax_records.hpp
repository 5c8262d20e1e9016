// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What an extended header of POSIX's pax format says about the members after it, as far as it
/// matters for their bytes.
struct pax_records {
  std::optional<std::string> path;    ///< in place of the header's
  std::optional<std::uint64_t> size;  ///< bytes, in place of the header's
  bool is_sparse = false;             ///< holes are left out, in one of GNU's ways

  /// Takes the records of `text` over: "LENGTH KEY=VALUE\n", where the length counts all of it and
  /// an empty value takes an earlier one back. Returns the place in `text` where there is no
  /// record, and what should be there in `expected`; or `std::string_view::npos`.
  [[nodiscard]] std::size_t read(std::string_view text, std::string_view& expected) {
    std::size_t begin = 0;
    while (begin < text.size()) {
      std::size_t length = 0;
      const char* const end = text.data() + text.size();
      const auto number = std::from_chars(text.data() + begin, end, length);
      expected = "a record of an extended header, 'LENGTH KEY=VALUE' and a line end";
      if (number.ec != std::errc{} || number.ptr == end || *number.ptr != ' ') return begin;
      const auto digits = static_cast<std::size_t>(number.ptr - text.data()) - begin;
      if (length > text.size() - begin || length < digits + 2) return begin;
      std::string_view record = text.substr(begin, length);
      if (record.back() != '\n') return begin;
      record = record.substr(digits + 1, length - digits - 2);
      const std::size_t equals = record.find('=');
      if (equals == std::string_view::npos) return begin;
      expected = take(record.substr(0, equals), record.substr(equals + 1));
      if (!expected.empty()) return begin;
      begin += length;
    }
    return std::string_view::npos;
  }

 private:
  // What the value should be; "" if it is that.
  [[nodiscard]] std::string_view take(std::string_view key, std::string_view value) {
    if (key == "path") {
      if (value.find('\0') != std::string_view::npos) return "a path without a NUL";
      path = value.empty() ? std::nullopt : std::optional<std::string>{value};
    } else if (key == "size") {
      std::uint64_t number = 0;
      const char* const end = value.data() + value.size();
      const auto read_to = std::from_chars(value.data(), end, number);
      if (!value.empty() && (read_to.ec != std::errc{} || read_to.ptr != end)) {
        return "a size in decimal digits";
      }
      size = value.empty() ? std::nullopt : std::optional{number};
    } else if (key.starts_with("GNU.sparse.")) {
      is_sparse = true;
    }
    return {};
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
