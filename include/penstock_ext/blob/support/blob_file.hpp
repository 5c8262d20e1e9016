// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Opens the directory `name`, looked up from the directory `base`. Throws `folder_unreadable` with
/// the path `path`.
[[nodiscard]] inline descriptor open_folder(int base, const char* name, const std::string& path) {
  descriptor folder = open_at(base, name, O_DIRECTORY);
  if (folder.get() < 0) throw folder_unreadable(path, "a readable folder", system_reason());
  return folder;
}

/// A letter of ASCII as a small one; other bytes as they are.
[[nodiscard]] constexpr char lowered(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

/// `name` below the folder `folder`; `name` itself where it starts at the root.
[[nodiscard]] inline std::string joined_path(std::string_view folder, std::string_view name) {
  std::string path;
  if (!folder.empty() && !name.starts_with('/')) {
    path = folder;
    if (!path.ends_with('/') && !name.empty()) path += '/';
  }
  return path.append(name);
}

/// Where a blob's file is: `name` is looked up from the open directory `base`, whose path, for
/// messages, is `folder`.
struct blob_place {
  int base;
  const char* name;
  std::string_view folder;

  /// The path for messages.
  [[nodiscard]] std::string path() const { return joined_path(folder, name); }
};

/// Opens what may be no regular file: O_NONBLOCK, so that a pipe without a writer does not block.
[[nodiscard]] inline descriptor open_blob(const blob_place& place) noexcept {
  descriptor file = open_at(place.base, place.name, O_NONBLOCK | O_NOCTTY);
  // A lease on a regular file, which a file server may hold, has to be waited for.
  if (file.get() < 0 && errno == EWOULDBLOCK) file = open_at(place.base, place.name, O_NOCTTY);
  return file;
}

/// Does nothing between two steps of `read_blob`, where a test writes to the file.
struct no_pause {
  void operator()() const noexcept {}
};

/// Reads the whole file into `buffer`. Throws `file_unreadable` also for what is no regular file,
/// `file_format_error` above `max_bytes`, before memory is taken, and `file_changed` where the size
/// or the time of the last change is another one after the reading.
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
    refuse_large(place.path(), max_bytes, max_bytes, before.size);
  }
  const std::span<std::byte> out = buffer.room_for(static_cast<std::size_t>(before.size));
  pause();
  const std::size_t filled = read_from(file.get(), 0, out, fail);
  if (::fstat(file.get(), &status) != 0) fail(filled);
  const file_stamp after = file_stamp_of(status);
  constexpr const char* remedy = ", which was written to meanwhile: read it again when it is whole";
  if (filled < out.size() || after.size != before.size) {
    const bool is_longer = after.size > before.size;
    throw file_changed(place.path(), is_longer ? before.size : filled,
                       "a file of " + std::to_string(before.size) + " bytes, as when it was opened",
                       "one of " + std::to_string(is_longer ? after.size : filled) + remedy);
  }
  if (after != before) {
    throw file_changed(place.path(), 0, "a file that stays as it is while it is read",
                       std::string{"one"} + remedy);
  }
  return out;
}

/// Has the system read the file ahead, if it can.
inline void prefetch_blob(const blob_place& place) noexcept {
  const descriptor file = open_blob(place);
  if (file.get() >= 0) static_cast<void>(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_WILLNEED));
}

/// An archive's bytes by their place: `read_at(offset, out)` fills `out`, less only at the end.
template <class S>
concept archive_bytes = requires(const S& source, std::uint64_t offset, std::span<std::byte> out) {
  { source.read_at(offset, out) } -> std::same_as<std::size_t>;
  { source.size() } -> std::convertible_to<std::uint64_t>;
  { source.path() } -> std::convertible_to<const std::string&>;
};

/// A shard's file, as it was when this was made: a later change is noticed. Movable. Reading is
/// thread-safe.
class shard_file {
 public:
  /// Opens the regular file `path`. Throws `file_unreadable`; where too many files are open,
  /// `advice`, which outlives this, says what to do.
  explicit shard_file(std::string path, std::string_view advice = "lower most_open")
      : path_(std::move(path)), advice_(advice), file_(open()) {
    struct ::stat status {};
    if (::fstat(file_.get(), &status) != 0) fail(0);
    require_regular(status, [this] { return path_; });
    stamp_ = file_stamp_of(status);
  }

  /// The path as it was given.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// How many bytes it has.
  [[nodiscard]] std::uint64_t size() const noexcept { return stamp_.size; }
  /// By what it is known again.
  [[nodiscard]] const file_stamp& stamp() const noexcept { return stamp_; }

  /// Gives the descriptor back. Each read opens the file then.
  void close() noexcept { file_ = descriptor{-1}; }

  /// Fills `out` with the bytes from `offset` on, less only at the end. Does not look whether the
  /// file has changed. Throws `file_unreadable`; not to be called after `close`.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const {
    return read(file_.get(), offset, out);
  }

  /// Fills `out` with the bytes from `offset` on. Throws `file_unreadable`, and `file_changed`
  /// where the file is another one by now, or was written to.
  void read_unchanged(std::uint64_t offset, std::span<std::byte> out) const {
    const descriptor opened = file_.get() < 0 ? open() : descriptor{-1};
    const int file = file_.get() < 0 ? opened.get() : file_.get();
    const std::size_t filled = read(file, offset, out);
    require_unchanged(file);
    if (filled < out.size()) refuse(offset + filled, "one that ends here");
  }

  /// Throws `file_changed` where the file was written to; not to be called after `close`.
  void require_unchanged() const { require_unchanged(file_.get()); }

  /// Has the system read ahead, if it can, and if the file is open.
  void prefetch(std::uint64_t offset, std::uint64_t bytes) const noexcept {
    if (file_.get() < 0) return;
    static_cast<void>(::posix_fadvise(file_.get(), static_cast<off_t>(offset),
                                      static_cast<off_t>(bytes), POSIX_FADV_WILLNEED));
  }

 private:
  [[noreturn]] void fail(std::uint64_t offset) const {
    throw file_unreadable(path_, offset, "a readable file", system_reason(advice_));
  }
  [[noreturn]] void refuse(std::uint64_t offset, const std::string& found) const {
    throw file_changed(path_, offset, "the file as it was when the shard was opened",
                       found + ": open the shards again when all are whole");
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
    refuse(0, is_same ? "one that was written to since" : "another file of this name");
  }

  std::string path_;
  std::string_view advice_;
  descriptor file_;
  file_stamp stamp_;
};

static_assert(archive_bytes<shard_file>);

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
