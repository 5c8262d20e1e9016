// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if statistics or a trace cannot be written because the folder is missing or not writable,
/// or the disk is full. A previous file with this path is unchanged.
class [[gnu::visibility("default")]] report_error : public error {
 public:
  /// `what` is a description such as "the trace"; `number` is the system's error number.
  report_error(std::string path, std::string_view what, int number)
      : error(path + ": " + std::string{what} +
              " cannot be written: " + std::system_category().message(number)),
        path_(std::move(path)),
        number_(number) {}
  /// Returns the path of the file.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the system's reason, an `errno` value such as ENOSPC or EACCES.
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  std::string path_;
  int number_;
};

namespace detail {

/// Writes all of `text` to a file, or nothing. Throws a `report_error` whose message calls the text
/// `what`.
inline void write_report(const std::string& path, std::string_view what, std::string_view text) {
  if (const int wrong = write_whole_file(path, text)) throw report_error(path, what, wrong);
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
