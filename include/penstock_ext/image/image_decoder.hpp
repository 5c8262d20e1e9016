// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

// What may be wrong with an encoded picture. Each is a `file_error`: `path()` is the blob's key,
// `offset()` the byte of the blob near which a decoder stood, 0 where it can't tell.

/// A picture's bytes end before the pixels that were asked for.
class [[gnu::visibility("default")]] image_truncated : public file_truncated {
 public:
  using file_truncated::file_truncated;
};

/// A picture's bytes are damaged: its header contradicts itself, or its pixels can't be right.
class [[gnu::visibility("default")]] image_corrupt : public file_corrupt {
 public:
  using file_corrupt::file_corrupt;
};

/// A picture is sound, as far as is known, but of a format or of a kind that no decoder here reads;
/// `found()` names it.
class [[gnu::visibility("default")]] image_unsupported : public file_format_error {
 public:
  using file_format_error::file_format_error;
};

/// A picture is larger than a limit of its decoder: in pixels, in memory or in the work that it
/// asks for. Found out before memory is taken.
class [[gnu::visibility("default")]] image_too_large : public file_error {
 public:
  using file_error::file_error;
};

/// The header of a picture.
struct image_info {
  image_size size;  ///< columns and rows of the decoded picture
  std::size_t channels =
      0;                ///< values a pixel as they are stored: 1 grey, 3 colour, 4 CMYK or RGBA
  int orientation = 1;  ///< 1 to 8 as EXIF has it; 1 (upright) where it is ignored

  friend constexpr bool operator==(const image_info&, const image_info&) = default;
};

/// Decodes pictures of one format to 8-bit RGB. The contract:
///
///     struct decoder {
///       bool matches(std::span<const std::byte> bytes) const noexcept;  // is this my format?
///       image_info info(std::span<const std::byte> bytes, std::string_view key);
///       void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
///                   const pixels& out);
///     };
///
/// `matches` looks at the content, at the first few bytes of it. `info` reads the header only.
/// `decode` writes every pixel of `box`, which lies inside `info().size`, to `out`, which has the
/// box's size and three channels: the values that decoding the whole picture gives there.
///
/// What is wrong with the bytes is thrown as an `image_truncated`, `image_corrupt`,
/// `image_unsupported` or `image_too_large` that names `key`; a limit holds before memory is taken.
/// A decoder keeps its memory for the next picture, and no picture depends on an earlier one, also
/// not after a failure. One object is for one thread at a time; a copy has the same options and
/// memory of its own.
template <class D>
concept image_decoder = std::copy_constructible<D> &&
                        requires(D& decoder, const D& constant, std::span<const std::byte> bytes,
                                 std::string_view key, const image_box& box, const pixels& out) {
                          { constant.matches(bytes) } noexcept -> std::convertible_to<bool>;
                          { decoder.info(bytes, key) } -> std::convertible_to<image_info>;
                          decoder.decode(bytes, key, box, out);
                        };

/// An `image_decoder` that can decode to 1/2, 1/4 or 1/8 of the width and height, rounded up: `box`
/// is then in pixels of the smaller picture.
template <class D>
concept scaled_image_decoder =
    image_decoder<D> && requires(D& decoder, std::span<const std::byte> bytes, std::string_view key,
                                 const image_box& box, const pixels& out, unsigned denominator) {
      decoder.decode(bytes, key, box, out, denominator);
    };

namespace detail {

/// `size` decoded to 1 / `denominator`.
[[nodiscard]] constexpr image_size scaled_down(const image_size& size,
                                               unsigned denominator) noexcept {
  return {(size.width + denominator - 1) / denominator,
          (size.height + denominator - 1) / denominator};
}

/// Throws std::invalid_argument unless a decoder can write `box` of a picture of `size` to `out`.
inline void require_box(std::string_view decoder, const image_box& box, const image_size& size,
                        const pixels& out) {
  if (!is_part_of(box, size)) {
    throw std::invalid_argument(std::string{decoder} + ": expected a box inside the picture of " +
                                to_text(size) + ", found " + to_text(box));
  }
  if (out.size != box.size || out.channels != 3) {
    throw std::invalid_argument(std::string{decoder} + ": expected room for " + to_text(box.size) +
                                " pixels of 3 channels, found " + to_text(out.size) + " of " +
                                std::to_string(out.channels));
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
