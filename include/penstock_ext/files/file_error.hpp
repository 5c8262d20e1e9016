// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a file has an unexpected state or content. Contains the path, the byte offset, the
/// expectation and the finding. The offset counts uncompressed bytes, or compressed bytes if the
/// compression is damaged. Derived types distinguish the problems.
class [[gnu::visibility("default")]] file_error : public error {
 public:
  file_error(std::string path, std::uint64_t offset, std::string expected, std::string found)
      : error(path + ": at byte " + std::to_string(offset) + ": expected " + expected + ", found " +
              found),
        path_(std::move(path)),
        offset_(offset),
        expected_(std::move(expected)),
        found_(std::move(found)) {}

  /// Returns the file path.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the byte offset in the file.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  /// Returns a description of what was expected at the offset of the error.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// Returns a description of what was found at the offset of the error.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string path_;
  std::uint64_t offset_;
  std::string expected_;
  std::string found_;
};

/// Thrown if a file is missing or cannot be read. `found()` returns the system error message.
class [[gnu::visibility("default")]] file_unreadable : public file_error {
 public:
  using file_error::file_error;
};

/// Thrown if a file cannot be written. `found()` returns the system error message, for example for
/// a full disk.
class [[gnu::visibility("default")]] file_unwritable : public file_error {
 public:
  using file_error::file_error;
};

/// Thrown if a file ends too early.
class [[gnu::visibility("default")]] file_truncated : public file_error {
 public:
  using file_error::file_error;
};

/// Thrown if a file has another format, or another variant of the format.
class [[gnu::visibility("default")]] file_format_error : public file_error {
 public:
  using file_error::file_error;
};

/// Thrown if the element type in a file differs from the requested type.
class [[gnu::visibility("default")]] element_type_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// Thrown if the dimensions in a file differ from the record in number or length, or if their
/// product exceeds 64 bits.
class [[gnu::visibility("default")]] dimension_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// Thrown if two files that belong together have different numbers of samples.
class [[gnu::visibility("default")]] length_mismatch : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// Thrown if an entry that must be unique appears twice, such as a sample key, or a file under two
/// names. `path()` and `offset()` locate the second entry.
class [[gnu::visibility("default")]] duplicate_entry : public file_format_error {
 public:
  /// `what` describes the unique entry. `remedy` is advice for the user.
  duplicate_entry(std::string path, std::uint64_t offset, const std::string& what,
                  std::string first_path, std::uint64_t first_offset, const std::string& remedy)
      : file_format_error(std::move(path), offset, what + " once",
                          "a second occurrence: the first is at byte " +
                              std::to_string(first_offset) + " of " + first_path + ": " + remedy),
        first_path_(std::move(first_path)),
        first_offset_(first_offset) {}

  /// Returns the file of the first entry.
  [[nodiscard]] const std::string& first_path() const noexcept { return first_path_; }
  /// Returns the byte offset of the first entry in that file.
  [[nodiscard]] std::uint64_t first_offset() const noexcept { return first_offset_; }

 private:
  std::string first_path_;
  std::uint64_t first_offset_;
};

/// Thrown if file content is damaged, as detected by a checksum or in the compressed stream.
class [[gnu::visibility("default")]] file_corrupt : public file_error {
 public:
  using file_error::file_error;
};

/// Thrown if a file was modified while it was read, so that the bytes may be from several versions.
/// A retry (`error_policy::retries`) reads the file again.
class [[gnu::visibility("default")]] file_changed : public file_error {
 public:
  using file_error::file_error;
};

/// Thrown if an object name leads, or may lead, outside the folder of its store. Such a name is
/// absolute, contains "..", or passes through a link. No file was opened.
class [[gnu::visibility("default")]] object_name_error : public file_error {
 public:
  using file_error::file_error;
};

/// Thrown if a folder has an unexpected state or content. Contains the path, the expectation and
/// the finding. Derived types distinguish the problems.
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

  /// Returns the folder path.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns a description of what was expected in the folder.
  [[nodiscard]] const std::string& expected() const noexcept { return expected_; }
  /// Returns a description of what was found in the folder.
  [[nodiscard]] const std::string& found() const noexcept { return found_; }

 private:
  std::string path_;
  std::string expected_;
  std::string found_;
};

/// Thrown if a folder is missing or cannot be read. `found()` returns the system error message.
class [[gnu::visibility("default")]] folder_unreadable : public folder_error {
 public:
  using folder_error::folder_error;
};

/// Thrown if a folder contains no classes, or if a class folder contains no file with a requested
/// extension.
class [[gnu::visibility("default")]] empty_folder : public folder_error {
 public:
  using folder_error::folder_error;
};

/// Thrown if a folder is a link to a folder that contains it, so that its content is infinite.
class [[gnu::visibility("default")]] folder_cycle : public folder_error {
 public:
  using folder_error::folder_error;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
