// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Formats a byte for error messages.
inline std::string hex(std::uint8_t byte) {
  constexpr char digits[] = "0123456789abcdef";
  return std::string{"0x"} + digits[byte >> 4U] + digits[byte & 0xfU];
}

/// Parses all of `text` as a decimal number in the range of `Number`. Accepts only digits, with a
/// leading '-' if `Number` is signed. Returns nothing if parsing fails.
template <class Number = std::uint64_t>
[[nodiscard]] std::optional<Number> whole_number(std::string_view text) noexcept {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

/// Appends up to `count` bytes of `source` to `bytes`, or fewer at the end of the content. Returns
/// the number of appended bytes. Allocates memory for the available data instead of `count` bytes,
/// because a damaged file may specify any size.
template <byte_source Source>
std::uint64_t append_bytes(Source& source, std::vector<std::byte>& bytes, std::uint64_t count) {
  constexpr std::uint64_t step = std::uint64_t{1} << 20;
  std::uint64_t done = 0;
  while (done < count) {
    const std::uint64_t piece =
        (std::min)(count - done, std::max<std::uint64_t>(step, source.available()));
    const std::size_t old_size = bytes.size();
    bytes.resize(old_size + static_cast<std::size_t>(piece));
    const std::size_t filled = source.read(std::span{bytes}.subspan(old_size));
    bytes.resize(old_size + filled);
    done += filled;
    if (filled < piece) break;
  }
  return done;
}

/// Returns the whole content of `source`. Throws `file_format_error` if the content is longer than
/// `max_bytes`, and errors from the source.
template <byte_source Source>
[[nodiscard]] std::vector<std::byte> read_bytes(
    Source& source, std::uint64_t max_bytes = (std::numeric_limits<std::uint64_t>::max)()) {
  std::vector<std::byte> bytes;
  append_bytes(source, bytes, max_bytes);
  std::byte next{};
  // Reads even after all bytes have arrived, because the end of a compressed file is verified by
  // reading it.
  if (source.read({&next, 1}) != 0) {
    throw file_format_error(source.path(), max_bytes,
                            "at most " + std::to_string(max_bytes) + " bytes", "more");
  }
  return bytes;
}

/// Returns the whole content of the file `path`. Throws `file_unreadable`, and `file_format_error`
/// if the content is longer than `max_bytes`.
[[nodiscard]] inline std::vector<std::byte> read_file(
    std::string path, std::uint64_t max_bytes = (std::numeric_limits<std::uint64_t>::max)()) {
  file_source source{std::move(path)};
  return read_bytes(source, max_bytes);
}

/// Reads into `out` from byte `offset` of the open file. Returns the number of bytes read, which is
/// smaller than `out` only at the end of the file. If byte `at` cannot be read, sets `errno` and
/// calls `fail(at)`, which must throw.
template <class Fail>
[[nodiscard]] std::size_t read_from(int file, std::uint64_t offset, std::span<std::byte> out,
                                    const Fail& fail) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t count = ::pread(file, out.data() + filled, out.size() - filled,
                                  static_cast<off_t>(offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(offset + filled);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  return filled;
}

/// Writes `bytes` to the open file, starting at `offset`. If byte `at` cannot be written, with
/// `left` bytes remaining, sets `errno` and calls `fail(at, left)`, which must throw.
template <class Fail>
void write_at(int file, std::uint64_t offset, std::span<const std::byte> bytes, const Fail& fail) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (count == 0) errno = EIO;
      fail(offset, bytes.size());
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

/// Returns a name for a file that the program has opened, for messages.
[[nodiscard]] inline std::string name_of_descriptor(int file) {
  return "file descriptor " + std::to_string(file);
}

/// Duplicates a descriptor that the program owns. On failure, returns a negative descriptor and
/// sets `errno`.
[[nodiscard]] inline descriptor duplicate_of(int file) noexcept {
  return descriptor{::fcntl(file, F_DUPFD_CLOEXEC, 0)};
}

/// A buffer for reads that bypass the page cache (O_DIRECT), in huge pages if available. A disk
/// request has a segment for each contiguous range of physical memory, and reads with few segments
/// were measured to be 2.4 times as fast. Not thread-safe.
class direct_memory {
 public:
  /// Alignment of addresses, file offsets and sizes, as required by devices with blocks of up to 4
  /// KiB.
  static constexpr std::size_t alignment = 4096;

  /// Returns a buffer of `bytes` bytes. The previous content may be lost.
  [[nodiscard]] std::byte* room_for(std::size_t bytes) {
    if (bytes > bytes_) {
      bytes = (bytes + huge_page - 1) / huge_page * huge_page;
      memory_.reset();
      bytes_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, std::align_val_t{huge_page})));
      bytes_ = bytes;
      ::madvise(memory_.get(), bytes, MADV_HUGEPAGE);
    }
    return memory_.get();
  }

 private:
  static constexpr std::size_t huge_page = std::size_t{2} << 20;

  struct aligned_delete {
    void operator()(std::byte* bytes) const noexcept {
      ::operator delete(bytes, std::align_val_t{huge_page});
    }
  };

  std::unique_ptr<std::byte, aligned_delete> memory_;
  std::size_t bytes_ = 0;
};

/// Identifies a file version by device, inode, size, and modification time.
struct file_stamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;

  friend bool operator==(const file_stamp&, const file_stamp&) = default;
  /// Returns true if this modification time is earlier than that of `other`.
  [[nodiscard]] bool is_older_than(const file_stamp& other) const noexcept {
    return seconds != other.seconds ? seconds < other.seconds : nanoseconds < other.nanoseconds;
  }
};

/// Returns the stamp for `status`.
[[nodiscard]] inline file_stamp file_stamp_of(const struct ::stat& status) noexcept {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

/// Returns the stamp of the file `path`. Throws `file_unreadable` if the file is missing or
/// inaccessible.
[[nodiscard]] inline file_stamp stamp_of_file(const std::string& path) {
  struct ::stat status {};
  if (::stat(path.c_str(), &status) == 0) return file_stamp_of(status);
  throw file_unreadable(path, 0, "a readable file", system_reason());
}

/// Throws `file_unreadable` with the path `path()` if the file is not a regular file.
template <class Path>
void require_regular(const struct ::stat& status, const Path& path) {
  if (S_ISREG(status.st_mode)) return;
  throw file_unreadable(path(), 0, "a regular file",
                        S_ISDIR(status.st_mode) ? "a folder" : "a pipe, socket or device");
}

/// Decodes `bytes` as a little-endian integer.
[[nodiscard]] inline std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

/// An unsigned integer of `Size` bytes if `Size` is 2, 4 or 8, otherwise of 8 bytes.
template <std::size_t Size>
using word_of_bytes =
    std::conditional_t<Size == 2, std::uint16_t,
                       std::conditional_t<Size == 4, std::uint32_t, std::uint64_t>>;

/// Decodes `Size` bytes as a little-endian integer. On a little-endian machine, this is a single
/// load if `Size` is 2, 4 or 8, and compilers vectorize loops of it.
template <std::size_t Size>
  requires(Size <= sizeof(std::uint64_t))
[[nodiscard]] inline std::uint64_t little_endian(const std::byte* bytes) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    word_of_bytes<Size> value = 0;
    std::memcpy(&value, bytes, Size);
    return value;
  } else {
    return little_endian(std::span{bytes, Size});
  }
}

/// Reverses the bytes of each `Size`-byte element in place. Does nothing unless `Size` is 2, 4 or
/// 8.
template <std::size_t Size>
void swap_bytes(std::span<std::byte> elements) noexcept {
  using word = word_of_bytes<Size>;
  if constexpr (Size == sizeof(word)) {
    for (std::size_t i = 0; i < elements.size(); i += Size) {
      word value = 0;
      std::memcpy(&value, &elements[i], Size);
      value = static_cast<word>(__builtin_bswap64(value) >> (64 - 8 * Size));
      std::memcpy(&elements[i], &value, Size);
    }
  }
}

/// Starts background reads of mapped bytes that are not in memory. Ranges should be added in order,
/// so that adjacent ranges share a system call. The destructor starts the last read.
class read_soon {
 public:
  read_soon() = default;
  read_soon(read_soon&&) = delete;
  ~read_soon() { ask(); }

  /// Adds the `count` bytes at `first`, which must be mapped.
  void add(const std::byte* first, std::size_t count) noexcept {
    if (count == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(first) & ~(page_ - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(first) + count;
    if (begin < begin_ || begin > end_) {
      ask();
      begin_ = begin;
      end_ = end;
    } else if (end > end_) {
      end_ = end;
    }
  }

 private:
  void ask() const noexcept {
    // The call is only a hint. If it fails, the bytes are read on access.
    if (begin_ != end_) {
      static_cast<void>(
          ::madvise(reinterpret_cast<void*>(begin_), end_ - begin_, MADV_WILLNEED));  // NOLINT
    }
  }

  std::uintptr_t page_ = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::uintptr_t begin_ = 0;  // page-aligned end of the requested bytes
  std::uintptr_t end_ = 0;
};

/// Writes all `bytes`. Returns 0 or an errno value.
[[nodiscard]] inline int write_all(int file, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return EIO;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

/// Flushes the data of the open file to disk. Returns 0 or an errno value. Also returns 0 if the
/// file system does not support the call.
[[nodiscard]] inline int sync_descriptor(int file) noexcept {
  while (::fsync(file) != 0) {
    if (errno == EINVAL || errno == ENOTSUP) return 0;
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// Returns a name for a temporary file that will be renamed to `target`:
/// TARGET.part-PROCESS-NUMBER. The name is unique among running threads. Thread-safe.
[[nodiscard]] inline std::string part_name(const std::string& target) {
  static std::atomic<unsigned> files{0};  // relaxed suffices for a counter
  return target + ".part-" + std::to_string(::getpid()) + '-' +
         std::to_string(files.fetch_add(1, std::memory_order_relaxed));
}

/// Returns true if `path` refers to the open file.
[[nodiscard]] inline bool is_name_of(const std::string& path, int file) noexcept {
  struct ::stat named {};
  struct ::stat open {};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         named.st_dev == open.st_dev && named.st_ino == open.st_ino;
}

/// Creates a temporary file next to `target`, open for writing, and stores its name in `part`. On
/// failure, returns a negative descriptor and sets `errno`. The file is locked until it is closed
/// (see `remove_dead_parts`). Does not use mkstemp, whose files only this user could access.
/// Thread-safe.
[[nodiscard]] inline descriptor open_part(const std::string& target, std::string& part,
                                          ::mode_t mode = 0666) {
  // A process that has died, with the same process ID, may have left files.
  for (int tries = 0; tries < 1000; ++tries) {
    part = part_name(target);
    descriptor file = open_at(AT_FDCWD, part.c_str(), O_WRONLY | O_CREAT | O_EXCL, mode);
    if (file.get() < 0 && errno == EEXIST) continue;
    if (file.get() < 0) return file;
    // Another process may have locked and removed the file in the meantime. Some file systems do
    // not support locks.
    const bool is_taken = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_taken && is_name_of(part, file.get())) return file;
  }
  errno = EEXIST;
  return descriptor{-1};
}

/// Removes the temporary files for `target` left by killed processes, whose locks have ended. Files
/// that are being written are locked and remain. If the file system does not support locks, all
/// files remain.
inline void remove_dead_parts(const std::string& target) {
  const std::size_t name = target.rfind('/') + 1;
  const std::string folder = name == 0 ? "." : target.substr(0, name);
  const std::string start = target.substr(name) + ".part-";
  std::error_code problem;  // if the folder cannot be read, nothing is removed
  std::vector<std::string> parts;
  for (std::filesystem::directory_iterator at{folder, problem}, end; !problem && at != end;
       at.increment(problem)) {
    const std::string found = at->path().filename().string();
    const std::string_view numbers =
        std::string_view{found}.substr(found.starts_with(start) ? start.size() : found.size());
    const std::size_t dash = (std::min)(numbers.find('-'), numbers.size());
    if (!whole_number(numbers.substr(0, dash)) || dash == numbers.size()) continue;
    if (whole_number(numbers.substr(dash + 1))) parts.push_back(target.substr(0, name) + found);
  }
  for (const std::string& part : parts) {
    const descriptor file =
        open_at(AT_FDCWD, part.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (is_name_of(part, file.get())) ::unlink(part.c_str());
  }
}

/// Flushes the directory entry of the file `target` to disk. Ignores errors, because file systems
/// without this call store the entry immediately.
inline void sync_name(const std::string& target) {
  const std::size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  const descriptor in = open_at(AT_FDCWD, folder.c_str(), O_DIRECTORY);
  if (in.get() >= 0) static_cast<void>(sync_descriptor(in.get()));
}

/// Returns the target of the link `path`. Returns `path` itself if it is not a link or the target
/// does not exist.
[[nodiscard]] inline std::string linked_file(std::string path) {
  struct ::stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return path;
  char* const led_to = ::realpath(path.c_str(), nullptr);
  if (led_to != nullptr) path = led_to;
  std::free(led_to);
  return path;
}

/// Replaces the content of the file `path` with `bytes`, or leaves the file unchanged on failure.
/// Writes a temporary file, which then replaces the old file and has its mode. Follows links.
/// Writes directly to a file that is not regular, such as a pipe. If `is_durable` is true, the new
/// content also survives a power failure, and temporary files of killed processes are removed.
/// Returns 0 or an errno value. Thread-safe.
[[nodiscard]] inline int write_whole_file(const std::string& path, std::string_view bytes,
                                          bool is_durable = false) {
  const std::string target = linked_file(path);
  struct stat before {};
  const bool is_there = ::stat(target.c_str(), &before) == 0;
  const bool is_special = is_there && !S_ISREG(before.st_mode);
  if (is_durable && !is_special) remove_dead_parts(target);
  std::string part = target;
  descriptor file =
      is_special ? open_at(AT_FDCWD, target.c_str(), O_WRONLY | O_TRUNC) : open_part(target, part);
  if (file.get() < 0) return errno;
  int wrong = write_all(file.get(), bytes);
  if (is_there && !is_special) static_cast<void>(::fchmod(file.get(), before.st_mode & 07777));
  if (is_durable && wrong == 0) wrong = sync_descriptor(file.get());
  if (::close(file.release()) != 0 && wrong == 0) wrong = errno;
  if (is_special) return wrong;
  if (wrong == 0 && std::rename(part.c_str(), target.c_str()) != 0) wrong = errno;
  if (wrong != 0) ::unlink(part.c_str());
  if (is_durable && wrong == 0) sync_name(target);
  return wrong;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
