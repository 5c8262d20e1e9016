// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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

/// A `byte_source` that decompresses a zstd file (RFC 8878) with one or more frames while reading.
/// Verifies the frame checksums, if present. Requires libzstd (CMake target `penstock::zstd`). Not
/// thread-safe. Allocates memory for the window of a frame, at most 128 MiB.
///
/// Throws `file_format_error` if the file is not a zstd file or has a larger window,
/// `file_truncated` if the compressed stream ends too early, and `file_corrupt` if the stream is
/// damaged or followed by other data. The offset in these errors counts consumed compressed bytes,
/// in pieces of up to 256 KiB.
class zstd_source {
 public:
  /// Opens the file `path`.
  explicit zstd_source(std::string path) : file_(std::move(path)), unpacker_(::ZSTD_createDCtx()) {
    if (unpacker_ == nullptr) throw std::bad_alloc();
    refill();
    if (input_.size == 0) throw file_truncated(this->path(), 0, "a zstd file", "an empty file");
    if (!at_magic()) {
      throw file_format_error(this->path(), 0, "a zstd file, which starts with 0x28 0xb5 0x2f 0xfd",
                              next_bytes() + ": open a plain file without penstock::zstd");
    }
  }
  zstd_source(const zstd_source&) = delete;
  zstd_source& operator=(const zstd_source&) = delete;

  /// Fills `out` and returns the number of bytes read, which is smaller only at the end of the
  /// content.
  std::size_t read(std::span<std::byte> out) {
    ::ZSTD_outBuffer room{out.data(), out.size(), 0};
    while (room.pos < room.size && !at_end_) unpack_some(room);
    return room.pos;
  }

  /// Returns 0, because the size is unknown before decompression.
  [[nodiscard]] std::uint64_t available() const noexcept { return 0; }

  /// Returns the file path.
  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

 private:
  struct deleter {
    void operator()(::ZSTD_DCtx* unpacker) const noexcept { ::ZSTD_freeDCtx(unpacker); }
  };

  void unpack_some(::ZSTD_outBuffer& room) {
    if (input_.pos == input_.size) refill();
    const bool is_last = input_.size == 0;
    if (is_last && !in_frame_) {
      at_end_ = true;
      return;
    }
    if (!in_frame_ && !at_magic()) {
      throw file_corrupt(path(), consumed(), "the end of the file or another zstd frame",
                         next_bytes());
    }
    const std::size_t before = room.pos;
    // The suggested size of the next input, or 0 after a complete frame.
    const std::size_t hint = ::ZSTD_decompressStream(unpacker_.get(), &room, &input_);
    if (::ZSTD_isError(hint) != 0U) fail(hint);
    in_frame_ = hint != 0;
    if (in_frame_ && is_last && room.pos == before) {
      throw file_truncated(path(), consumed(), "the rest of the compressed stream",
                           "the end of the file");
    }
  }

  [[noreturn]] void fail(std::size_t status) const {
    const ::ZSTD_ErrorCode code = ::ZSTD_getErrorCode(status);
    if (code == ZSTD_error_memory_allocation) throw std::bad_alloc();
    if (code == ZSTD_error_frameParameter_windowTooLarge) {
      throw file_format_error(path(), consumed(), "a window of at most 128 MiB",
                              "a larger window: pack it without --long, or with --long=27");
    }
    throw file_corrupt(path(), consumed(), "a valid compressed stream",
                       ::ZSTD_getErrorName(status));
  }

  void refill() {
    read_ += input_.size;
    input_.size = file_.read({reinterpret_cast<std::byte*>(memory_.get()), input_size});
    input_.src = memory_.get();
    input_.pos = 0;
  }

  [[nodiscard]] std::span<const unsigned char> next() const noexcept {
    const std::span all{memory_.get(), input_.size};
    return all.subspan(input_.pos).first((std::min)(input_.size - input_.pos, std::size_t{4}));
  }

  // Compares four bytes, or fewer if the buffer ends earlier. The first byte of a skippable frame
  // is 0x50 to 0x5f.
  [[nodiscard]] bool at_magic() const noexcept {
    constexpr std::array<unsigned char, 4> frame{0x28, 0xb5, 0x2f, 0xfd};
    constexpr std::array<unsigned char, 4> skipped{0x50, 0x2a, 0x4d, 0x18};
    const auto bytes = next();
    const bool skips = (bytes[0] & 0xf0U) == skipped[0];
    return skips ? std::equal(bytes.begin() + 1, bytes.end(), skipped.begin() + 1)
                 : std::equal(bytes.begin(), bytes.end(), frame.begin());
  }

  // Formats one to four bytes for messages.
  [[nodiscard]] std::string next_bytes() const {
    std::string text;
    for (const unsigned char byte : next()) text += (text.empty() ? "" : " ") + detail::hex(byte);
    return text;
  }

  [[nodiscard]] std::uint64_t consumed() const noexcept { return read_ + input_.pos; }

  static constexpr std::size_t input_size = std::size_t{1} << 18;

  file_source file_;
  std::unique_ptr<::ZSTD_DCtx, deleter> unpacker_;
  std::unique_ptr<unsigned char[]> memory_ = std::make_unique<unsigned char[]>(input_size);
  ::ZSTD_inBuffer input_{nullptr, 0, 0};
  std::uint64_t read_ = 0;  // number of file bytes before the buffer
  bool in_frame_ = false;
  bool at_end_ = false;
};

static_assert(byte_source<zstd_source>);

/// An opener and codec for zstd files:
///
///     idx_dataset digits{zstd{}, "images.zst", "labels.zst"};
///     mds_shards texts{"c4/train", {.compression = zstd{}, .unpacked = "/scratch/c4"}};
struct zstd {
  /// Opens the file `path` for reading.
  [[nodiscard]] zstd_source operator()(std::string path) const {
    return zstd_source{std::move(path)};
  }
  /// Returns "zstd", the name of the format and its file extension.
  [[nodiscard]] std::string family() const { return "zstd"; }
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
