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

/// Thrown if statistics or a trace cannot be written, for example because the folder is missing or
/// not writable, or the disk is full. An existing file is unchanged.
class [[gnu::visibility("default")]] report_error : public error {
 public:
  /// `what` names the content, such as "the trace". `number` is an errno value.
  report_error(std::string path, std::string_view what, int number)
      : error(path + ": " + std::string{what} +
              " cannot be written: " + std::system_category().message(number)),
        path_(std::move(path)),
        number_(number) {}
  /// Returns the file path.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the errno value, such as ENOSPC or EACCES.
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  std::string path_;
  int number_;
};

namespace detail {

/// Writes `text` to a file. If writing fails, leaves an existing file unchanged and throws a
/// `report_error` whose message names the content as `what`.
inline void write_report(const std::string& path, std::string_view what, std::string_view text) {
  if (const int wrong = write_whole_file(path, text)) throw report_error(path, what, wrong);
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
