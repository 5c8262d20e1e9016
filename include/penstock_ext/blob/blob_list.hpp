// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A file and its label.
struct blob_entry {
  std::string path;        ///< path of the file
  std::int64_t label = 0;  ///< class of the sample
};

/// Options of a `blob_list`.
struct blob_list_options {
  /// Base folder of relative paths. If empty, the working directory at construction.
  std::string folder = {};
  /// Maximum file size in bytes. For a larger file, `bytes` throws `file_format_error` before it
  /// allocates memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
};

/// A `blob_source` of individual files with labels:
///
///     blob_list some{{{"a.jpg", 3}, {"/data/b.jpg", 5}}};
///
/// Each entry is a sample. The same file may be listed several times, and hidden files are allowed.
/// The list occupies 17 bytes plus the path for each file, and one file descriptor. Files are
/// opened only while they are read. Movable, not copyable. Reading is thread-safe.
class blob_list {
 public:
  /// Creates a list of `entries`. Throws `option_error` if a path is empty or contains a NUL, and
  /// `folder_unreadable` if the folder cannot be opened.
  explicit blob_list(const std::vector<blob_entry>& entries, const blob_list_options& options = {})
      : folder_(options.folder),
        max_bytes_(options.max_bytes),
        base_(detail::open_folder(AT_FDCWD, folder_.empty() ? "." : folder_.c_str(), folder_)) {
    for (const blob_entry& one : entries) {
      if (!is_path(one.path)) {
        throw option_error("entries[" + std::to_string(size()) + "].path",
                           "must not be empty and must not contain a NUL");
      }
      entries_.push_back({paths_.size(), one.label});
      paths_.append(one.path).push_back('\0');
    }
  }

  /// Returns the number of files.
  [[nodiscard]] std::uint64_t size() const noexcept { return entries_.size(); }

  /// Returns the content of file `index`, read into `buffer`. Throws `index_error`,
  /// `file_unreadable`, `file_format_error` if the file exceeds `max_bytes`, and `file_changed` if
  /// the file was modified during the read.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    return detail::read_blob(place(at(index)), max_bytes_, buffer);
  }

  /// Returns the label of file `index`. Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const { return at(index).label; }
  /// Returns the path of file `index`, as passed to the constructor. Throws `index_error` if
  /// `index` is out of range.
  [[nodiscard]] std::string key(std::uint64_t index) const { return place(at(index)).name; }
  /// Starts a background read of the file, as `image_folder::prefetch` does.
  void prefetch(std::uint64_t index) const noexcept {
    if (index < size()) detail::prefetch_blob(place(entries_[static_cast<std::size_t>(index)]));
  }

 private:
  struct entry {
    std::size_t begin;  // start of the NUL-terminated path in `paths_`
    std::int64_t label;
  };

  [[nodiscard]] static bool is_path(std::string_view path) noexcept {
    return !path.empty() && path.find('\0') == std::string_view::npos;
  }

  [[nodiscard]] const entry& at(std::uint64_t index) const {
    if (index >= size()) throw index_error("blob_list", index, size());
    return entries_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] detail::blob_place place(const entry& one) const noexcept {
    return {base_.get(), paths_.data() + one.begin, folder_};
  }

  std::string folder_;
  std::uint64_t max_bytes_;
  detail::descriptor base_;
  std::string paths_;
  std::vector<entry> entries_;
};

static_assert(blob_source<blob_list>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
