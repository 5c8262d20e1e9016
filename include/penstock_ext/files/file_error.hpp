// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A file is not what it should be. Says which file, at which byte (of the content that is read:
/// the compressed bytes where the compression is damaged), what was expected and what was found.
/// The types derived from it say what kind of problem it is.
class [[gnu::visibility("default")]] file_error : public error {
 public:
  file_error(std::string path, std::uint64_t offset, std::string expected, std::string found)
      : error(path + ": at byte " + std::to_string(offset) + ": expected " + expected + ", found " +
              found),
        path_(std::move(path)),
        offset_(offset),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// The file.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Where in the file, in bytes.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// What should have stood there.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// What stands there.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string path_;
  std::uint64_t offset_;
  std::string expected_;
  std::string found_;
};

/// The file is missing or can't be read; `found()` is the system's reason.
class [[gnu::visibility("default")]] file_unreadable : public file_error {
 public:
  using file_error::file_error;
};

/// The file can't be written; `found()` is the system's reason, such as a full disk.
class [[gnu::visibility("default")]] file_unwritable : public file_error {
 public:
  using file_error::file_error;
};

/// The file ends too early.
class [[gnu::visibility("default")]] file_truncated : public file_error {
 public:
  using file_error::file_error;
};

/// The file is of another format, or of another kind of this format.
class [[gnu::visibility("default")]] file_format_error : public file_error {
 public:
  using file_error::file_error;
};

/// The elements in the file are not of the type that was asked for.
class [[gnu::visibility("default")]] element_type_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// The dimensions in the file do not fit: their number or lengths differ from the record's, or
/// their product has no room in 64 bits.
class [[gnu::visibility("default")]] dimension_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// Two files that belong together hold different numbers of samples.
class [[gnu::visibility("default")]] length_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// The content is damaged: a checksum or the compressed stream does not match.
class [[gnu::visibility("default")]] file_corrupt : public file_error {
 public:
  using file_error::file_error;
};

/// The file was written to while it was read: its bytes belong to no one version of it. A retry
/// (`error_policy::retries`) reads it anew.
class [[gnu::visibility("default")]] file_changed : public file_error {
 public:
  using file_error::file_error;
};

/// An object's name leads, or may lead, to a file outside of its store's folder: it starts at the
/// root, has ".." in it, or a link on its way points elsewhere. Nothing was opened.
class [[gnu::visibility("default")]] object_name_error : public file_error {
 public:
  using file_error::file_error;
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
