// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/hidden_path.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Opens the directory `name`, resolved relative to the directory `base`. Throws
/// `folder_unreadable`, which contains `path`.
[[nodiscard]] inline descriptor open_folder(int base, const char* name, const std::string& path) {
  descriptor folder = open_at(base, name, O_DIRECTORY);
  if (folder.get() < 0) throw folder_unreadable(path, "a readable folder", system_reason());
  return folder;
}

/// Joins `folder` and `name`. Returns `name` unchanged if it is absolute.
[[nodiscard]] inline std::string joined_path(std::string_view folder, std::string_view name) {
  std::string path;
  if (!folder.empty() && !name.starts_with('/')) {
    path = folder;
    if (!path.ends_with('/') && !name.empty()) path += '/';
  }
  return path.append(name);
}

/// The location of a blob file. `name` is relative to the open directory `base`. `folder` is the
/// directory's path, for messages.
struct blob_place {
  int base;
  const char* name;
  std::string_view folder;

  /// Returns the path for messages.
  [[nodiscard]] std::string path() const { return joined_path(folder, name); }
};

/// Opens a file that may not be a regular file. Uses O_NONBLOCK, so that opening a pipe without a
/// writer does not block.
[[nodiscard]] inline descriptor open_blob(const blob_place& place) noexcept {
  descriptor file = open_at(place.base, place.name, O_NONBLOCK | O_NOCTTY);
  // A file server may hold a lease on a regular file. A blocking open waits until the lease ends.
  if (file.get() < 0 && errno == EWOULDBLOCK) file = open_at(place.base, place.name, O_NOCTTY);
  return file;
}

/// The function that `read_blob` calls between its two halves. Does nothing. Tests pass a function
/// that writes to the file.
struct no_pause {
  void operator()() const noexcept {}
};

/// Reads the whole file into `buffer`. Throws `file_unreadable` if the file cannot be read or is
/// not a regular file. If the file exceeds `max_bytes`, throws `file_format_error` before it
/// allocates memory. Throws `file_changed` if the file's size or modification time changes during
/// the read.
template <class Pause = no_pause>
[[nodiscard]] std::span<const std::byte> read_blob(const blob_place& place, std::uint64_t max_bytes,
                                                   blob_buffer& buffer, const Pause& pause = {}) {
  const auto fail = [&](std::uint64_t at) {
    throw file_unreadable(place.path(), at, "a readable file", system_reason());
  };
  const descriptor file = open_blob(place);
  struct ::stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) fail(0);
  require_regular(status, [&] { return place.path(); });
  const file_stamp before = file_stamp_of(status);
  if (before.size > max_bytes || before.size > (std::numeric_limits<std::size_t>::max)()) {
    throw_blob_too_large(place.path(), max_bytes, max_bytes, before.size);
  }
  const std::span<std::byte> out = buffer.room_for(static_cast<std::size_t>(before.size));
  pause();
  const std::size_t filled = read_from(file.get(), 0, out, fail);
  if (::fstat(file.get(), &status) != 0) fail(filled);
  const file_stamp after = file_stamp_of(status);
  constexpr const char* remedy =
      ", which was written to in the meantime: read it again when it is complete";
  if (filled < out.size() || after.size != before.size) {
    const bool is_longer = after.size > before.size;
    throw file_changed(place.path(), is_longer ? before.size : filled,
                       "a file of " + std::to_string(before.size) + " bytes, as when it was opened",
                       "one of " + std::to_string(is_longer ? after.size : filled) + remedy);
  }
  if (after != before) {
    throw file_changed(place.path(), 0, "a file that does not change while it is read",
                       std::string{"one"} + remedy);
  }
  return out;
}

/// Starts a background read of the file. Ignores errors.
inline void prefetch_blob(const blob_place& place) noexcept {
  const descriptor file = open_blob(place);
  if (file.get() >= 0) static_cast<void>(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_WILLNEED));
}

/// Random access to an archive's bytes. `read_at(offset, out)` fills `out` and returns the number
/// of bytes read, which is smaller only at the end of the archive.
template <class S>
concept archive_bytes = requires(const S& source, std::uint64_t offset, std::span<std::byte> out) {
  { source.read_at(offset, out) } -> std::same_as<std::size_t>;
  { source.size() } -> std::convertible_to<std::uint64_t>;
  { source.path() } -> std::convertible_to<const std::string&>;
};

/// A shard file. Detects changes since construction. Movable. Reading is thread-safe.
class shard_file {
 public:
  /// Opens the regular file `path`. Throws `file_unreadable` if the file cannot be opened or is not
  /// a regular file. If the process has too many open files, the message includes `advice`, which
  /// must outlive this object.
  explicit shard_file(std::string path, std::string_view advice = "lower max_open")
      : path_(std::move(path)), advice_(advice), file_(open()) {
    struct ::stat status {};
    if (::fstat(file_.get(), &status) != 0) fail(0);
    require_regular(status, [this] { return path_; });
    stamp_ = file_stamp_of(status);
  }

  /// Returns the path as passed to the constructor.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Returns the size in bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return stamp_.size; }
  /// Returns the stamp that identifies the file and its last change.
  [[nodiscard]] const file_stamp& stamp() const noexcept { return stamp_; }

  /// Closes the file. Each later read opens the file again.
  void close() noexcept { file_ = descriptor{-1}; }

  /// Reads into `out` from byte `offset`. Returns the number of bytes read, which is smaller than
  /// `out` only at the end of the file. Does not detect changes. Throws `file_unreadable` if
  /// reading fails. Must not be called after `close`.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const {
    return read(file_.get(), offset, out);
  }

  /// Fills `out` from byte `offset`. Throws `file_unreadable`, and `file_changed` if the file was
  /// replaced or modified.
  void read_unchanged(std::uint64_t offset, std::span<std::byte> out) const {
    const descriptor opened = file_.get() < 0 ? open() : descriptor{-1};
    const int file = file_.get() < 0 ? opened.get() : file_.get();
    const std::size_t filled = read(file, offset, out);
    require_unchanged(file);
    if (filled < out.size()) reject(offset + filled, "a file that ends here");
  }

  /// Throws `file_changed` if the file was modified. Must not be called after `close`.
  void require_unchanged() const { require_unchanged(file_.get()); }

  /// Starts a background read if the file is open. Ignores errors.
  void prefetch(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    if (file_.get() < 0) return;
    static_cast<void>(::posix_fadvise(file_.get(), static_cast<off_t>(offset),
                                      static_cast<off_t>(bytes), POSIX_FADV_WILLNEED));
  }

 private:
  [[noreturn]] void fail(std::uint64_t offset) const {
    throw file_unreadable(path_, offset, "a readable file", system_reason(advice_));
  }
  [[noreturn]] void reject(std::uint64_t offset, const std::string& found) const {
    throw file_changed(path_, offset, "the file as it was when the shard was opened",
                       found + ": open the shards again when all are complete");
  }

  [[nodiscard]] descriptor open() const {
    descriptor file = open_blob({AT_FDCWD, path_.c_str(), {}});
    if (file.get() < 0) fail(0);
    return file;
  }

  [[nodiscard]] std::size_t read(int file, std::uint64_t offset, std::span<std::byte> out) const {
    return read_from(file, offset, out, [this](std::uint64_t at) { fail(at); });
  }

  void require_unchanged(int file) const {
    struct ::stat status {};
    if (::fstat(file, &status) != 0) fail(0);
    const file_stamp now = file_stamp_of(status);
    if (now == stamp_) return;
    const bool is_same = now.device == stamp_.device && now.inode == stamp_.inode;
    reject(0, is_same ? "a file that was written to since" : "another file of this name");
  }

  std::string path_;
  std::string_view advice_;
  descriptor file_;
  file_stamp stamp_;
};

static_assert(archive_bytes<shard_file>);

/// Finds entries that refer to the same file, possibly under different names. `stamp_of` returns an
/// entry's `file_stamp` or nothing, and `path_of` returns its path. If `action` is `reject`, throws
/// `duplicate_entry`. Otherwise removes all but the last entry of each file.
template <class Entry, class StampOf, class PathOf>
void resolve_repeated_files(std::vector<Entry>& entries, duplicate_action action,
                            const StampOf& stamp_of, const PathOf& path_of) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::size_t> last;  // by device and inode
  std::vector<std::size_t> replaced;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::optional<file_stamp> stamp = stamp_of(entries[i]);
    if (!stamp) continue;
    const auto [before, is_new] = last.try_emplace({stamp->device, stamp->inode}, i);
    if (is_new) continue;
    if (action == duplicate_action::reject) {
      throw duplicate_entry(path_of(entries[i]), 0, "each file", path_of(entries[before->second]),
                            0, "list it once, or set .duplicates = duplicate_action::take_last");
    }
    replaced.push_back(std::exchange(before->second, i));
  }
  std::sort(replaced.begin(), replaced.end(), std::greater<>{});
  for (const std::size_t i : replaced) {
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// Applies `resolve_repeated_files` to shards whose member `file` is a `shard_file`.
template <class Shard>
void resolve_repeated_files(std::vector<Shard>& shards, duplicate_action action) {
  resolve_repeated_files(
      shards, action, [](const Shard& shard) { return std::optional{shard.file.stamp()}; },
      [](const Shard& shard) { return shard.file.path(); });
}

/// Returns `paths` without repeated files, or unchanged if `action` is `keep`. Keeps a path whose
/// file cannot be examined, so that opening the file reports the error.
[[nodiscard]] inline std::vector<std::string> resolve_repeated_paths(std::vector<std::string> paths,
                                                                     duplicate_action action) {
  if (action == duplicate_action::keep) return paths;
  resolve_repeated_files(
      paths, action,
      [](const std::string& path) {
        struct ::stat status {};
        return ::stat(path.c_str(), &status) == 0 ? std::optional{file_stamp_of(status)}
                                                  : std::nullopt;
      },
      [](const std::string& path) { return path; });
  return paths;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
