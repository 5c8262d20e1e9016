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
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/data/file_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

inline std::string hex(std::uint8_t byte) {
  constexpr char digits[] = "0123456789abcdef";
  return std::string{"0x"} + digits[byte >> 4U] + digits[byte & 0xfU];
}

}  // namespace detail

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

/// A file as it is. Opened by the constructor, closed by the destructor.
class file_source {
 public:
  /// Throws `file_unreadable`.
  explicit file_source(std::string path)
      : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail();
  }
  file_source(const file_source&) = delete;
  file_source& operator=(const file_source&) = delete;
  ~file_source() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  /// Fills `out`, less only at the end of the file. Throws `file_unreadable`.
  std::size_t read(std::span<std::byte> out) {
    std::size_t filled = 0;
    while (filled < out.size()) {
      // One call moves at most 2 GiB on Linux, and may move less.
      const ssize_t count = ::read(descriptor_, out.data() + filled, out.size() - filled);
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
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
    const auto bytes = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
    return bytes - (std::min)(bytes, offset_);
  }

  /// The file's name.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  [[noreturn]] void fail() {
    const std::string reason = std::system_category().message(errno);
    // The destructor of an object whose constructor throws does not run.
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    throw file_unreadable(path_, offset_, "a readable file", reason);
  }

  std::string path_;
  int descriptor_;
  std::uint64_t offset_ = 0;
};

static_assert(byte_source<file_source>);

/// Opens a file of the given path as a `byte_source`: `open_file`, and `gzip` of data/gzip.hpp.
template <class O>
concept file_opener = requires(const O& open, std::string path) {
  { open(path) } -> byte_source;
};

/// Opens a file as it is.
struct plain_opener {
  /// Opens the file.
  [[nodiscard]] file_source operator()(std::string path) const {
    return file_source{std::move(path)};
  }
};
/// Opens a file as it is.
inline constexpr plain_opener open_file{};

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
    done += filled;
    if (filled < piece) {
      bytes.resize(old_size + filled);
      break;
    }
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

}  // namespace PENSTOCK_ABI
}  // namespace penstock
