// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
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

/// A byte as the messages of file errors have it.
inline std::string hex(std::uint8_t byte) {
  constexpr char digits[] = "0123456789abcdef";
  return std::string{"0x"} + digits[byte >> 4U] + digits[byte & 0xfU];
}

/// A decimal number that is all of `text`, in the range of `Number`: digits alone, also after a '-'
/// where `Number` has a sign.
template <class Number = std::uint64_t>
[[nodiscard]] std::optional<Number> whole_number(std::string_view text) noexcept {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

/// Appends up to `count` bytes of `source` to `bytes`, less only at the end of the content, and
/// returns how many. Memory grows with what is there and not with `count`: a file may announce
/// anything.
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

/// The whole content of `source`. Throws `file_format_error` if it is longer than `max_bytes`, and
/// what the source throws.
template <byte_source Source>
[[nodiscard]] std::vector<std::byte> read_bytes(
    Source& source, std::uint64_t max_bytes = (std::numeric_limits<std::uint64_t>::max)()) {
  std::vector<std::byte> bytes;
  append_bytes(source, bytes, max_bytes);
  std::byte next{};
  // Also asked for when all has come: only at the end does a compressed file prove to be whole.
  if (source.read({&next, 1}) != 0) {
    throw file_format_error(source.path(), max_bytes,
                            "at most " + std::to_string(max_bytes) + " bytes", "more");
  }
  return bytes;
}

/// The whole content of the file `path`. Throws `file_unreadable`, and `file_format_error` if it is
/// longer than `max_bytes`.
[[nodiscard]] inline std::vector<std::byte> read_file(
    std::string path, std::uint64_t max_bytes = (std::numeric_limits<std::uint64_t>::max)()) {
  file_source source{std::move(path)};
  return read_bytes(source, max_bytes);
}

/// Fills `out` with the bytes of the open file from `offset` on, less only at its end. Where byte
/// `at` can't be read, `errno` says why, and it calls `fail(at)`, which throws.
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

/// Memory for reads past the page cache (O_DIRECT), in huge pages where the system has them: a
/// request to the disk has as many segments as its memory, and with few of them it was 2.4 times as
/// fast. One thread at a time.
class direct_memory {
 public:
  /// What devices with blocks of up to 4 KiB ask of an address, a place in the file and a size.
  static constexpr std::size_t alignment = 4096;

  /// Room for `bytes` bytes; what it held before may be gone.
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

/// By what a file is known again: which one it is, how long, and when it was last written to.
struct file_stamp {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;

  friend bool operator==(const file_stamp&, const file_stamp&) = default;
  /// Whether the file was last written to before `other`.
  [[nodiscard]] bool is_older_than(const file_stamp& other) const noexcept {
    return seconds != other.seconds ? seconds < other.seconds : nanoseconds < other.nanoseconds;
  }
};

/// The stamp of the file that `status` is of.
[[nodiscard]] inline file_stamp file_stamp_of(const struct ::stat& status) noexcept {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

/// Throws `file_unreadable`, with the path that `path()` says, for what is no regular file.
template <class Path>
void require_regular(const struct ::stat& status, const Path& path) {
  if (S_ISREG(status.st_mode)) return;
  throw file_unreadable(path(), 0, "a regular file",
                        S_ISDIR(status.st_mode) ? "a folder" : "a pipe, socket or device");
}

/// A little-endian number of so many bytes.
[[nodiscard]] inline std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8U | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return value;
}

/// A little-endian number of `Size` bytes: a single load on a little-endian machine.
template <std::size_t Size>
  requires(Size <= sizeof(std::uint64_t))
[[nodiscard]] inline std::uint64_t little_endian(const std::byte* bytes) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, Size);
    return value;
  } else {
    return little_endian(std::span{bytes, Size});
  }
}

/// Turns the bytes of each element of `Size` bytes round, in place: of 2, 4 or 8; others have no
/// order of bytes.
template <std::size_t Size>
void swap_bytes(std::span<std::byte> elements) noexcept {
  using word = std::conditional_t<Size == 2, std::uint16_t,
                                  std::conditional_t<Size == 4, std::uint32_t, std::uint64_t>>;
  if constexpr (Size == sizeof(word)) {
    for (std::size_t i = 0; i < elements.size(); i += Size) {
      word value = 0;
      std::memcpy(&value, &elements[i], Size);
      value = static_cast<word>(__builtin_bswap64(value) >> (64 - 8 * Size));
      std::memcpy(&elements[i], &value, Size);
    }
  }
}

/// A file's bytes where the system has them: mapped, and read when they are looked at. Takes no
/// memory of the process, and no file descriptor after the construction. A file that replaces it is
/// not seen. The file must not be made shorter meanwhile: looking at what is gone ends the process.
/// Movable; the bytes stay where they are. Thread-safe.
class mapped_file {
 public:
  /// Maps the regular file `path`. Throws `file_unreadable`.
  explicit mapped_file(std::string path) : path_(std::move(path)) {
    // O_NONBLOCK: a pipe without a writer does not block.
    const descriptor file = open_at(AT_FDCWD, path_.c_str(), O_NONBLOCK | O_NOCTTY);
    struct ::stat status {};
    if (file.get() < 0 || ::fstat(file.get(), &status) != 0) fail(system_reason());
    if (!S_ISREG(status.st_mode)) fail("what is no regular file");
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size > (std::numeric_limits<std::size_t>::max)() / 2) fail("more bytes than addresses");
    if (size == 0) return;
    void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (bytes == MAP_FAILED) fail(system_reason());
    bytes_ = {static_cast<std::byte*>(bytes), static_cast<std::size_t>(size)};
  }
  mapped_file(mapped_file&& other) noexcept
      : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  mapped_file& operator=(mapped_file&&) = delete;
  ~mapped_file() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  /// The path as it was given.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// All of the file.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  [[noreturn]] void fail(const std::string& found) const {
    throw file_unreadable(path_, 0, "a readable file", found);
  }

  std::string path_;
  std::span<std::byte> bytes_;
};

/// Has the system read the pages of mapped bytes that it does not have in memory, as they come: in
/// their order, neighbours by one call. The last ones are asked for at the end of this object.
class read_soon {
 public:
  read_soon() = default;
  read_soon(read_soon&&) = delete;
  ~read_soon() { ask(); }

  /// The `count` bytes from `first` on, which are mapped.
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
    // A hint: what the system refuses is read when it is looked at.
    if (begin_ != end_) {
      static_cast<void>(
          ::madvise(reinterpret_cast<void*>(begin_), end_ - begin_, MADV_WILLNEED));  // NOLINT
    }
  }

  std::uintptr_t page_ = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  std::uintptr_t begin_ = 0;  // of what is not asked for yet; a page's
  std::uintptr_t end_ = 0;
};

/// Writes all of `bytes`; the system's number of what went wrong, or 0.
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

/// Has the disk take what was written to the open file. The system's number of what went
/// wrong, or 0; also where the file system has no such call.
[[nodiscard]] inline int sync_descriptor(int file) noexcept {
  while (::fsync(file) != 0) {
    if (errno == EINVAL || errno == ENOTSUP) return 0;
    if (errno != EINTR) return errno;
  }
  return 0;
}

/// A name beside `target` for what is to become it: TARGET.part-PROCESS-NUMBER. No two threads that
/// run take one. From any thread.
[[nodiscard]] inline std::string part_name(const std::string& target) {
  static std::atomic<unsigned> files{0};  // relaxed: it only counts
  return target + ".part-" + std::to_string(::getpid()) + '-' +
         std::to_string(files.fetch_add(1, std::memory_order_relaxed));
}
/// Makes a new file beside `target`, to be written, whose name `part` gets; below 0, with `errno`,
/// where it can't be. Not mkstemp, whose file is for this user alone. From any thread.
[[nodiscard]] inline descriptor open_part(const std::string& target, std::string& part,
                                          ::mode_t mode = 0666) {
  descriptor file{-1};
  for (int tries = 0; tries < 1000; ++tries) {  // a dead process of this number may have left some
    part = part_name(target);
    file = open_at(AT_FDCWD, part.c_str(), O_WRONLY | O_CREAT | O_EXCL, mode);
    if (file.get() >= 0 || errno != EEXIST) break;
  }
  return file;
}

/// Where a link leads to a file, that one; else `path`, also of a link to nothing.
[[nodiscard]] inline std::string linked_file(std::string path) {
  struct ::stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode)) return path;
  char* const led_to = ::realpath(path.c_str(), nullptr);
  if (led_to != nullptr) path = led_to;
  std::free(led_to);
  return path;
}

/// Makes `path` a file of these bytes, or leaves it as it was: they are written to a file beside
/// it, which gets its name and its mode when it is whole; where a link leads to a file, that one.
/// What is no ordinary file, such as a pipe, is written to as it is. Returns the system's number of
/// what went wrong, or 0. From any thread.
[[nodiscard]] inline int write_whole_file(const std::string& path, std::string_view bytes) {
  const std::string target = linked_file(path);
  struct stat before {};
  const bool is_there = ::stat(target.c_str(), &before) == 0;
  const bool is_special = is_there && !S_ISREG(before.st_mode);
  std::string part = target;
  descriptor file =
      is_special ? open_at(AT_FDCWD, target.c_str(), O_WRONLY | O_TRUNC) : open_part(target, part);
  if (file.get() < 0) return errno;
  int wrong = write_all(file.get(), bytes);
  if (is_there && !is_special) static_cast<void>(::fchmod(file.get(), before.st_mode & 07777));
  if (::close(file.release()) != 0 && wrong == 0) wrong = errno;
  if (is_special) return wrong;
  if (wrong == 0 && std::rename(part.c_str(), target.c_str()) != 0) wrong = errno;
  if (wrong != 0) ::unlink(part.c_str());
  return wrong;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
