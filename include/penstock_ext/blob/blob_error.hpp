// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <utility>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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
