// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

// Errors in encoded images. All are derived from `file_error`. `path()` returns the blob key.
// `offset()` returns the approximate byte position of the decoder in the blob, or 0 if unknown.

/// Thrown if an encoded image ends before the requested pixels.
class [[gnu::visibility("default")]] image_truncated : public file_truncated {
 public:
  using file_truncated::file_truncated;
};

/// Thrown if an encoded image is damaged, for example if its header is inconsistent or its pixels
/// are invalid.
class [[gnu::visibility("default")]] image_corrupt : public file_corrupt {
 public:
  using file_corrupt::file_corrupt;
};

/// Thrown if no decoder supports the format of an image, or a variant of the format. The image
/// itself may be valid. `found()` returns the format or variant.
class [[gnu::visibility("default")]] image_unsupported : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// Thrown if an image exceeds a decoder limit for pixels, memory or work. Detected before memory is
/// allocated.
class [[gnu::visibility("default")]] image_too_large : public file_error {
 public:
  using file_error::file_error;
};

/// Header of an image.
struct image_info {
  image_size size;           ///< size of the decoded image
  std::size_t channels = 0;  ///< stored channels: 1 for gray, 3 for color, 4 for CMYK or RGBA
  int orientation = 1;       ///< EXIF orientation, 1 to 8; 1 (upright) if the decoder ignores it

  friend constexpr bool operator==(const image_info&, const image_info&) = default;
};

/// Decodes images of one format to 8-bit RGB. A decoder has these members:
///
///     struct decoder {
///       bool matches(std::span<const std::byte> bytes) const noexcept;  // checks the format
///       image_info info(std::span<const std::byte> bytes, std::string_view key);
///       void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
///                   const pixels& out);
///     };
///
/// `matches` checks the first few bytes of the content. `info` reads only the header. `decode`
/// writes every pixel of `box` to `out`. `box` must be inside `info().size`, and `out` must have
/// the box's size and three channels. The values equal the same part of the whole decoded image.
///
/// Invalid images cause `image_truncated`, `image_corrupt`, `image_unsupported` or
/// `image_too_large` with `key` in the message. Limits are checked before memory is allocated. A
/// decoder reuses its memory for the next image, but no result depends on an earlier image, even
/// after a failure. Not thread-safe. A copy has the same options and separate memory.
template <class D>
concept image_decoder = std::copy_constructible<D> &&
                        requires(D& decoder, const D& constant, std::span<const std::byte> bytes,
                                 std::string_view key, const image_box& box, const pixels& out) {
                          { constant.matches(bytes) } noexcept -> std::convertible_to<bool>;
                          { decoder.info(bytes, key) } -> std::convertible_to<image_info>;
                          decoder.decode(bytes, key, box, out);
                        };

/// An `image_decoder` that can also decode at 1/2, 1/4 or 1/8 scale, with sides rounded up. `box`
/// is then in pixels of the smaller image.
template <class D>
concept scaled_image_decoder =
    image_decoder<D> && requires(D& decoder, std::span<const std::byte> bytes, std::string_view key,
                                 const image_box& box, const pixels& out, unsigned denominator) {
      decoder.decode(bytes, key, box, out, denominator);
    };

/// An `image_decoder` that can also decode to 16 bits per channel without loss. `decode16` has the
/// contract of `decode`, except that `out` has one to four channels. An image that cannot be
/// converted to them without loss causes `image_unsupported`.
template <class D>
concept image16_decoder =
    image_decoder<D> && requires(D& decoder, std::span<const std::byte> bytes, std::string_view key,
                                 const image_box& box, const basic_pixels<std::uint16_t>& out) {
      decoder.decode16(bytes, key, box, out);
    };

namespace detail {

/// Returns the size of an image of `size` that is decoded at 1/`denominator` scale.
[[nodiscard]] constexpr image_size scaled_down(const image_size& size,
                                               unsigned denominator) noexcept {
  return {(size.width + denominator - 1) / denominator,
          (size.height + denominator - 1) / denominator};
}

/// Throws std::invalid_argument unless `box` lies inside an image of `size` and `out` has the box
/// size and three channels.
inline void require_box(std::string_view decoder, const image_box& box, const image_size& size,
                        const pixels& out) {
  if (!is_part_of(box, size)) {
    throw std::invalid_argument(std::string{decoder} + ": expected a box inside the image of " +
                                to_text(size) + ", found " + to_text(box));
  }
  if (out.size != box.size || out.channels != 3) {
    throw std::invalid_argument(std::string{decoder} + ": expected room for " + to_text(box.size) +
                                " pixels of 3 channels, found " + to_text(out.size) + " of " +
                                std::to_string(out.channels));
  }
}

/// Returns true if `bytes` contain `text` at position `at`.
[[nodiscard]] inline bool has_text(std::span<const std::byte> bytes, std::size_t at,
                                   std::string_view text) noexcept {
  const std::string_view all{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return at <= all.size() && all.substr(at).starts_with(text);
}

/// Returns the format name of an image, detected from its first bytes, or "" if the format is
/// unknown.
[[nodiscard]] inline std::string_view image_format_of(std::span<const std::byte> bytes) noexcept {
  using namespace std::string_view_literals;
  const auto starts = [bytes](std::string_view text) { return has_text(bytes, 0, text); };
  if (starts("\xff\xd8\xff"sv)) return "JPEG";
  if (starts("\x89PNG\r\n\x1a\n"sv)) return "PNG";
  if (starts("GIF87a"sv) || starts("GIF89a"sv)) return "GIF";
  if (starts("RIFF"sv) && has_text(bytes, 8, "WEBP"sv)) return "WebP";
  if (starts("II*\0"sv) || starts("MM\0*"sv) || starts("II+\0"sv) || starts("MM\0+"sv))
    return "TIFF";
  if (starts("\0\0\0\x0cjP  \r\n\x87\n"sv) || starts("\xff\x4f\xff\x51"sv)) return "JPEG 2000";
  if (starts("\0\0\0\x0cJXL \r\n\x87\n"sv) || starts("\xff\x0a"sv)) return "JPEG XL";
  if (has_text(bytes, 4, "ftyp"sv)) {
    if (has_text(bytes, 8, "avif"sv) || has_text(bytes, 8, "avis"sv)) return "AVIF";
    for (const auto brand : {"heic"sv, "heix"sv, "hevc"sv, "mif1"sv, "msf1"sv}) {
      if (has_text(bytes, 8, brand)) return "HEIC";
    }
  }
  // Bytes 6 to 9 are reserved and must be 0. In a text file they would not be 0.
  if (starts("BM"sv) && has_text(bytes, 6, "\0\0\0\0"sv)) return "BMP";
  if (bytes.size() > 2 && starts("P"sv)) {
    const auto kind = std::to_integer<char>(bytes[1]);
    const auto next = std::to_integer<char>(bytes[2]);
    if (kind >= '1' && kind <= '6' && " \n\r\t#"sv.find(next) != std::string_view::npos)
      return "PPM";
  }
  return {};
}

/// Describes `bytes` for messages, for example as "a WebP image" or by the first bytes in
/// hexadecimal.
[[nodiscard]] inline std::string found_image(std::span<const std::byte> bytes) {
  if (bytes.empty()) return "no bytes at all";
  const std::string_view format = image_format_of(bytes);
  if (!format.empty()) return "a " + std::string{format} + " image";
  std::string text = "bytes of an unknown format:";
  constexpr std::string_view digits = "0123456789abcdef";
  for (std::size_t i = 0; i < bytes.size() && i < 8; ++i) {
    const auto value = std::to_integer<unsigned>(bytes[i]);
    text += ' ';
    text += digits[value >> 4];
    text += digits[value & 15];
  }
  return text;
}

/// Returns the `count`-byte integer at position `at`, which must lie inside `bytes`. The integer is
/// big-endian if `highest_first` is true, otherwise little-endian.
[[nodiscard]] inline std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t at,
                                             std::size_t count, bool highest_first) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t next = highest_first ? i : count - 1 - i;
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[at + next]);
  }
  return value;
}

/// Returns true if a JPEG image is truncated before its end marker.
[[nodiscard]] inline bool jpeg_ends_early(std::span<const std::byte> bytes) noexcept {
  constexpr std::byte mark{0xff};
  constexpr std::byte end{0xd9};
  constexpr std::byte scan{0xda};
  std::size_t at = 2;
  // Skips segments first, because an EXIF block may contain a thumbnail with its own end marker.
  while (true) {
    while (at + 1 < bytes.size() && bytes[at] == mark && bytes[at + 1] == mark) ++at;  // fill bytes
    if (at + 1 >= bytes.size()) return true;
    if (bytes[at] != mark) return false;  // damaged, but not necessarily truncated
    if (bytes[at + 1] == end) return false;
    if (bytes[at + 1] == scan) break;
    if (at + 3 >= bytes.size()) return true;
    at += 2 + number_at(bytes, at + 2, 2, true);
  }
  // In scan data, a byte 0xff is followed by 0 unless it begins a marker.
  auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  while ((from = std::find(from, bytes.end(), mark)) != bytes.end()) {
    if (++from != bytes.end() && *from == end) return false;
  }
  return true;
}

/// Returns true if a PNG image is truncated before its last chunk.
[[nodiscard]] inline bool png_ends_early(std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t around = 12;  // length, name and checksum of a chunk
  for (std::size_t at = 8; at + around <= bytes.size();) {
    const std::uint64_t content = number_at(bytes, at, 4, true);
    if (content > bytes.size() - at - around) return true;
    if (has_text(bytes, at + 4, "IEND")) return false;
    at += around + static_cast<std::size_t>(content);
  }
  return true;
}

/// Returns true if a BMP image is truncated before its last pixel. Supports only uncompressed
/// pixels. Computes the expected size from the width and height, because many files have a wrong
/// size in the header.
[[nodiscard]] inline bool bmp_ends_early(std::span<const std::byte> bytes) noexcept {
  const auto number = [bytes](std::size_t at, std::size_t count) {
    return number_at(bytes, at, count, false);
  };
  if (bytes.size() < 18) return true;
  if (number(14, 4) < 40) return false;  // an older header version
  if (bytes.size() < 54) return true;
  const std::uint64_t compression = number(30, 4);
  const std::uint64_t width = number(18, 4);
  const std::uint64_t rows =
      number(22, 4) >> 31 != 0 ? (1ull << 32) - number(22, 4) : number(22, 4);
  const std::uint64_t bits = width * number(28, 2);
  if ((compression != 0 && compression != 3) || bits == 0 || rows == 0) return false;
  if (number(10, 4) > bytes.size()) return true;
  const std::uint64_t there = bytes.size() - number(10, 4);
  // The padding of the last row to 4 bytes may be missing.
  const std::uint64_t last = (bits + 7) / 8;
  return there < last || (there - last) / ((bits + 31) / 32 * 4) < rows - 1;
}

/// Returns true if an encoded image is truncated, judged by its markers and lengths. Supports JPEG,
/// PNG, WebP and BMP, and returns false for other formats. Does not decode the image.
[[nodiscard]] inline bool image_ends_early(std::span<const std::byte> bytes) noexcept {
  const std::string_view format = image_format_of(bytes);
  if (format == "JPEG") return jpeg_ends_early(bytes);
  if (format == "PNG") return png_ends_early(bytes);
  if (format == "WebP") return number_at(bytes, 4, 4, false) > bytes.size() - 8;
  if (format == "BMP") return bmp_ends_early(bytes);
  return false;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
