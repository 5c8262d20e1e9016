// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A `byte_source` that decompresses a gzip file (RFC 1952) with one or more members while reading.
/// Verifies the checksum and length at the end of each member. Requires zlib (CMake target
/// `penstock::gzip`). Not thread-safe.
///
/// Throws `file_format_error` if the file is not a gzip file, `file_truncated` if the compressed
/// stream ends too early, and `file_corrupt` if the stream is damaged or followed by other data.
/// The offset in these errors counts compressed bytes.
class gzip_source {
 public:
  /// Opens the file `path`.
  explicit gzip_source(std::string path) : file_(std::move(path)) {
    refill();
    if (stream_.avail_in == 0) {
      throw file_truncated(this->path(), 0, "a gzip file", "an empty file");
    }
    if (!at_magic()) {
      throw file_format_error(this->path(), 0, "a gzip file, which starts with 0x1f 0x8b",
                              next_bytes() + ": open a plain file without penstock::gzip");
    }
    // Selects a window of 15 bits. Adding 16 accepts only the gzip format.
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  gzip_source(const gzip_source&) = delete;
  gzip_source& operator=(const gzip_source&) = delete;
  ~gzip_source() { ::inflateEnd(&stream_); }

  /// Fills `out` and returns the number of bytes read, which is smaller only at the end of the
  /// content.
  std::size_t read(std::span<std::byte> out) {
    std::size_t filled = 0;
    while (filled < out.size() && !at_end_) {
      const auto piece = static_cast<uInt>(
          std::min<std::size_t>(out.size() - filled, (std::numeric_limits<uInt>::max)()));
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
      stream_.avail_out = piece;
      inflate_some();
      filled += piece - stream_.avail_out;
    }
    return filled;
  }

  /// Returns 0, because the size is unknown before decompression.
  [[nodiscard]] std::uint64_t available() const noexcept { return 0; }

  /// Returns the file path.
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

 private:
  void inflate_some() {
    if (stream_.avail_in == 0) refill();
    if (stream_.avail_in == 0) {
      throw file_truncated(path(), consumed(), "the rest of the compressed stream",
                           "the end of the file");
    }
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      next_member();
    } else if (status == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      throw file_corrupt(path(), consumed(), "a valid compressed stream",
                         stream_.msg != nullptr ? stream_.msg : "a damaged stream");
    }
  }

  // Checks that a member is followed by another member or by the end of the file.
  void next_member() {
    if (stream_.avail_in == 0) refill();
    if (stream_.avail_in == 0) {
      at_end_ = true;
    } else if (at_magic()) {
      ::inflateReset(&stream_);
    } else {
      throw file_corrupt(path(), consumed(), "the end of the file or another gzip member",
                         next_bytes());
    }
  }

  void refill() {
    stream_.next_in = input_.get();
    stream_.avail_in =
        static_cast<uInt>(file_.read({reinterpret_cast<std::byte*>(input_.get()), input_size}));
    read_ += stream_.avail_in;
  }

  // Compares two bytes, or only one if the buffer ends after it.
  [[nodiscard]] bool at_magic() const noexcept {
    return stream_.next_in[0] == 0x1f && (stream_.avail_in < 2 || stream_.next_in[1] == 0x8b);
  }

  // Formats up to two bytes of the stream in hexadecimal, for messages.
  [[nodiscard]] std::string next_bytes() const {
    const std::string first = detail::hex(stream_.next_in[0]);
    return stream_.avail_in < 2 ? first : first + ' ' + detail::hex(stream_.next_in[1]);
  }

  [[nodiscard]] std::uint64_t consumed() const noexcept { return read_ - stream_.avail_in; }

  static constexpr std::size_t input_size = std::size_t{1} << 18;

  file_source file_;
  std::unique_ptr<Bytef[]> input_ = std::make_unique<Bytef[]>(input_size);
  ::z_stream stream_{};
  std::uint64_t read_ = 0;
  bool at_end_ = false;
};

static_assert(byte_source<gzip_source>);

namespace detail {

/// Opens gzip files.
struct gzip_opener {
  /// Opens the file `path`.
  [[nodiscard]] gzip_source operator()(std::string path) const {
    return gzip_source{std::move(path)};
  }
};
}  // namespace detail

/// An opener for gzip files, as in
/// `idx_dataset{gzip, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"}`.
inline constexpr detail::gzip_opener gzip{};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
