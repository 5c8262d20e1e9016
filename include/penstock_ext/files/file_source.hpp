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

/// The content of a file, from start to end: the seam between a file's format and how it is
/// stored. `read(out)` fills `out`, less only at the end of the content; `available()` is the
/// number of bytes that are surely still to come, 0 if unknown; both throw `file_error`s. One
/// thread uses it.
template <class S>
concept byte_source = requires(S& source, const S& constant, std::span<std::byte> out) {
  { source.read(out) } -> std::same_as<std::size_t>;
  { constant.available() } -> std::convertible_to<std::uint64_t>;
  { constant.path() } -> std::convertible_to<const std::string&>;
};

namespace detail {

/// A file descriptor, closed by the destructor. Movable.
class descriptor {
 public:
  /// Owns `number`; below 0: none, or a place such as AT_FDCWD, which is not closed.
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  /// The system's number of it.
  [[nodiscard]] int get() const noexcept { return number_; }
  /// Gives it away; this object has none then.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

/// The system's words for `errno`.
[[nodiscard]] inline std::string system_reason() { return std::system_category().message(errno); }

/// Those, and `advice` where too many files are open.
[[nodiscard]] inline std::string system_reason(std::string_view advice) {
  const bool are_too_many = errno == EMFILE || errno == ENFILE;
  return system_reason() + (are_too_many ? ": " + std::string{advice} : "");
}

/// Opens `name`, which is looked up from the directory `base`, with `flags`, for reading where they
/// say nothing else; what it makes has `mode`. A descriptor below 0 and `errno` where that fails.
[[nodiscard]] inline descriptor open_at(int base, const char* name, int flags,
                                        ::mode_t mode = 0) noexcept {
  while (true) {
    const int number = ::openat(base, name, flags | O_CLOEXEC, mode);
    if (number >= 0 || errno != EINTR) return descriptor{number};
  }
}

}  // namespace detail

/// A file as it is. Opened by the constructor, closed by the destructor.
class file_source {
 public:
  /// Throws `file_unreadable`.
  explicit file_source(std::string path)
      : path_(std::move(path)), file_(detail::open_at(AT_FDCWD, path_.c_str(), O_RDONLY)) {
    if (file_.get() < 0) fail();
  }
  file_source(const file_source&) = delete;
  file_source& operator=(const file_source&) = delete;

  /// Fills `out`, less only at the end of the file. Throws `file_unreadable`.
  std::size_t read(std::span<std::byte> out) {
    std::size_t filled = 0;
    while (filled < out.size()) {
      // One call moves at most 2 GiB on Linux, and may move less.
      const ssize_t count = ::read(file_.get(), out.data() + filled, out.size() - filled);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail();
      if (count == 0) break;
      filled += static_cast<std::size_t>(count);
      offset_ += static_cast<std::uint64_t>(count);
    }
    return filled;
  }

  /// How many bytes are left to read; 0 for what is no regular file.
  [[nodiscard]] std::uint64_t available() const noexcept {
    struct ::stat status {};
    if (::fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    const auto bytes = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
    return bytes - (std::min)(bytes, offset_);
  }

  /// The file's name.
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

/// Opens a file of the given path as a `byte_source`: `open_file`, and `gzip` of
/// penstock_ext/files/gzip/gzip.hpp.
template <class O>
concept file_opener = requires(const O& open, std::string path) {
  { open(path) } -> byte_source;
};

namespace detail {

/// Opens a file as it is.
struct plain_opener {
  /// Opens the file.
  [[nodiscard]] file_source operator()(std::string path) const {
    return file_source{std::move(path)};
  }
};

}  // namespace detail

/// Opens a file as it is.
inline constexpr detail::plain_opener open_file{};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
