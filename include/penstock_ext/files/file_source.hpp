// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <penstock_ext/files/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A sequential reader of file content, which may be stored in compressed form. `read(out)` fills
/// `out` and returns the number of bytes read, which is smaller only at the end of the content.
/// `available()` returns a lower bound on the number of remaining bytes, or 0 if unknown. Both
/// functions throw errors derived from `file_error`. Not thread-safe.
template <class S>
concept byte_source = requires(S& source, const S& constant, std::span<std::byte> out) {
  { source.read(out) } -> std::same_as<std::size_t>;
  { constant.available() } -> std::convertible_to<std::uint64_t>;
  { constant.path() } -> std::convertible_to<const std::string&>;
};

namespace detail {

/// Owns a file descriptor, which the destructor closes. Movable.
class descriptor {
 public:
  /// Takes ownership of descriptor `number`. A negative value means no descriptor or a constant
  /// such as AT_FDCWD, and is not closed.
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  /// Returns the descriptor number.
  [[nodiscard]] int get() const noexcept { return number_; }
  /// Transfers ownership of the descriptor to the caller.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

/// Returns the system error message for `errno`.
[[nodiscard]] inline std::string system_reason() { return std::system_category().message(errno); }

/// Returns the system error message for `errno`, followed by `advice` if too many files are open.
[[nodiscard]] inline std::string system_reason(std::string_view advice) {
  const bool are_too_many = errno == EMFILE || errno == ENFILE;
  return system_reason() + (are_too_many ? ": " + std::string{advice} : "");
}

/// Opens `name` relative to the directory `base` with `flags`. If `flags` specify no access mode,
/// opens for reading. A created file has the mode `mode`. On failure, returns a negative descriptor
/// and sets `errno`.
[[nodiscard]] inline descriptor open_at(int base, const char* name, int flags,
                                        ::mode_t mode = 0) noexcept {
  while (true) {
    const int number = ::openat(base, name, flags | O_CLOEXEC, mode);
    if (number >= 0 || errno != EINTR) return descriptor{number};
  }
}

}  // namespace detail

/// Reads an uncompressed file. The constructor opens the file, and the destructor closes it.
class file_source {
 public:
  /// Opens the file `path`. Throws `file_unreadable` if the file cannot be opened.
  explicit file_source(std::string path)
      : path_(std::move(path)), file_(detail::open_at(AT_FDCWD, path_.c_str(), O_RDONLY)) {
    if (file_.get() < 0) fail();
  }
  file_source(const file_source&) = delete;
  file_source& operator=(const file_source&) = delete;

  /// Fills `out` and returns the number of bytes read, which is smaller only at the end of the
  /// file. Throws `file_unreadable` if reading fails.
  std::size_t read(std::span<std::byte> out) {
    std::size_t filled = 0;
    while (filled < out.size()) {
      // On Linux, one call transfers at most 2 GiB and may transfer less.
      const ssize_t count = ::read(file_.get(), out.data() + filled, out.size() - filled);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail();
      if (count == 0) break;
      filled += static_cast<std::size_t>(count);
      offset_ += static_cast<std::uint64_t>(count);
    }
    return filled;
  }

  /// Returns the number of remaining bytes, or 0 if the file is not a regular file.
  [[nodiscard]] std::uint64_t available() const noexcept {
    struct ::stat status {};
    if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    const auto bytes = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
    return bytes - (std::min)(bytes, offset_);
  }

  /// Returns the file path.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  [[noreturn]] void fail() const {
    throw file_unreadable(path_, offset_, "a readable file", detail::system_reason());
  }

  std::string path_;
  detail::descriptor file_;
  std::uint64_t offset_ = 0;
};

static_assert(byte_source<file_source>);

/// A callable that opens the file with a given path as a `byte_source`. Examples are `open_file`,
/// and `gzip` from penstock_ext/files/gzip/gzip.hpp.
template <class O>
concept file_opener = requires(const O& open, std::string path) {
  { open(path) } -> byte_source;
};

namespace detail {

/// Opens uncompressed files.
struct plain_opener {
  /// Opens the file `path`.
  [[nodiscard]] file_source operator()(std::string path) const {
    return file_source{std::move(path)};
  }
};

}  // namespace detail

/// Opens uncompressed files.
inline constexpr detail::plain_opener open_file{};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
