// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a file has an unexpected state or content. Contains the path, the position in bytes,
/// what was expected, and what was found. The position counts bytes of the content, or compressed
/// bytes if the compression is damaged. The derived types distinguish the problems.
class [[gnu::visibility("default")]] file_error : public error {
 public:
  file_error(std::string path, std::uint64_t offset, std::string expected, std::string found)
      : error(path + ": at byte " + std::to_string(offset) + ": expected " + expected + ", found " +
              found),
        path_(std::move(path)),
        offset_(offset),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// Returns the path of the file.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the position in the file, in bytes.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// Returns what was expected at this position.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// Returns what was found at this position.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string path_;
  std::uint64_t offset_;
  std::string expected_;
  std::string found_;
};

/// The file is missing or cannot be read. `found()` is the system's reason.
class [[gnu::visibility("default")]] file_unreadable : public file_error {
 public:
  using file_error::file_error;
};

/// The file cannot be written. `found()` is the system's reason, such as a full disk.
class [[gnu::visibility("default")]] file_unwritable : public file_error {
 public:
  using file_error::file_error;
};

/// The file ends too early.
class [[gnu::visibility("default")]] file_truncated : public file_error {
 public:
  using file_error::file_error;
};

/// The file has another format, or another variant of this format.
class [[gnu::visibility("default")]] file_format_error : public file_error {
 public:
  using file_error::file_error;
};

/// The elements in the file have another type than requested.
class [[gnu::visibility("default")]] element_type_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// The dimensions in the file do not match: the number or the lengths differ from the record's, or
/// their product exceeds 64 bits.
class [[gnu::visibility("default")]] dimension_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// Two files that belong together have different numbers of samples.
class [[gnu::visibility("default")]] length_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// An entry that must be unique appears twice: two samples with the same key, or a file under two
/// names. `path()` and `offset()` locate the second entry.
class [[gnu::visibility("default")]] duplicate_entry : public file_format_error {
 public:
  /// `what` is the entry that must be unique. `remedy` is advice for the user.
  duplicate_entry(std::string path, std::uint64_t offset, const std::string& what,
                  std::string first_path, std::uint64_t first_offset, const std::string& remedy)
      : file_format_error(std::move(path), offset, what + " once",
                          "a second occurrence: the first is at byte " +
                              std::to_string(first_offset) + " of " + first_path + ": " + remedy),
        first_path_(std::move(first_path)),
        first_offset_(first_offset) {}

  /// Returns the file of the first entry.
  [[nodiscard]] const std::string& first_path() const noexcept { return first_path_; }
  /// Returns the position of the first entry in that file, in bytes.
  [[nodiscard]] std::uint64_t first_offset() const noexcept { return first_offset_; }

 private:
  std::string first_path_;
  std::uint64_t first_offset_;
};

/// The content is damaged: a checksum or the compressed stream does not match.
class [[gnu::visibility("default")]] file_corrupt : public file_error {
 public:
  using file_error::file_error;
};

/// The file was written to while it was read, so the bytes read mix several versions. A retry
/// (`error_policy::retries`) reads the file again.
class [[gnu::visibility("default")]] file_changed : public file_error {
 public:
  using file_error::file_error;
};

/// An object's name leads, or may lead, to a file outside the folder of its store. The name is
/// absolute, contains "..", or passes through a link that points elsewhere. No file was opened.
class [[gnu::visibility("default")]] object_name_error : public file_error {
 public:
  using file_error::file_error;
};

/// Thrown if a folder has an unexpected state or content. Contains the path, what was expected, and
/// what was found. The derived types distinguish the problems.
class [[gnu::visibility("default")]] folder_error : public error {
 public:
  /// `remedy` is advice for the user.
  folder_error(std::string path, std::string expected, std::string found,
               const std::string& remedy = {})
      : error(path + ": expected " + expected + ", found " + found +
              (remedy.empty() ? "" : ": " + remedy)),
        path_(std::move(path)),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// Returns the path of the folder.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns what was expected in the folder.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// Returns what was found in the folder.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string path_;
  std::string expected_;
  std::string found_;
};

/// The folder is missing or cannot be read. `found()` is the system's reason.
class [[gnu::visibility("default")]] folder_unreadable : public folder_error {
 public:
  using folder_error::folder_error;
};

/// The folder contains no class, or the folder of a class contains no file with a requested
/// extension.
class [[gnu::visibility("default")]] empty_folder : public folder_error {
 public:
  using folder_error::folder_error;
};

/// The folder is a link to a folder that contains it, so its content is endless.
class [[gnu::visibility("default")]] folder_cycle : public folder_error {
 public:
  using folder_error::folder_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
