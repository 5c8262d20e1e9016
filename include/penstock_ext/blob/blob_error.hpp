// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A CSV file is not well formed, or a row of it can't be used; `line()` says where, besides the
/// byte.
class [[gnu::visibility("default")]] csv_error : public file_format_error {
 public:
  /// `line` counts from 1, and `offset` from 0, in bytes.
  csv_error(std::string path, std::uint64_t line, std::uint64_t offset, const std::string& expected,
            std::string found)
      : file_format_error(std::move(path), offset, expected + " in line " + std::to_string(line),
                          std::move(found)),
        line_(line) {}

  /// The line of the file in which `offset()` lies, from 1.
  [[nodiscard]] std::uint64_t line() const noexcept { return line_; }

 private:
  std::uint64_t line_;
};

/// A folder is not what it should be. Says which folder, what was expected and what was found; the
/// types derived from it say what kind of problem it is.
class [[gnu::visibility("default")]] folder_error : public error {
 public:
  /// `remedy` says what to do about it.
  folder_error(std::string path, std::string expected, std::string found,
               const std::string& remedy = {})
      : error(path + ": expected " + expected + ", found " + found +
              (remedy.empty() ? "" : ": " + remedy)),
        path_(std::move(path)),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// The folder.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What should have been there.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// What is there.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string path_;
  std::string expected_;
  std::string found_;
};

/// The folder is missing or can't be read; `found()` is the system's reason.
class [[gnu::visibility("default")]] folder_unreadable : public folder_error {
 public:
  using folder_error::folder_error;
};

/// The folder holds no class, or a class's folder holds no file of the extensions asked for.
class [[gnu::visibility("default")]] empty_folder : public folder_error {
 public:
  using folder_error::folder_error;
};

/// The folder is a link to one that it lies in: what is below it has no end.
class [[gnu::visibility("default")]] folder_cycle : public folder_error {
 public:
  using folder_error::folder_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
