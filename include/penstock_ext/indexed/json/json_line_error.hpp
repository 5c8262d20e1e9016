// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a line is not a JSON object, or if its members do not match the record.
class [[gnu::visibility("default")]] json_line_error : public file_format_error {
 public:
  json_line_error(std::string path, std::uint64_t offset, std::uint64_t line, std::uint64_t column,
                  std::string expected, std::string_view found)
      : file_format_error(std::move(path), offset, std::move(expected),
                          detail::str_cat({found, " (line ", line, ", column ", column, ")"})),
        line_(line),
        column_(column) {}

  /// Returns the line in the file, counted from 1.
  [[nodiscard]] std::uint64_t line() const noexcept { return line_; }
  /// Returns the column in bytes, counted from 1.
  [[nodiscard]] std::uint64_t column() const noexcept { return column_; }

 private:
  std::uint64_t line_;
  std::uint64_t column_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
