// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <webp/decode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Limits of a `webp_decoder`.
struct webp_options {
  /// Maximum number of pixels, checked before memory is allocated. libwebp needs four bytes for
  /// each pixel of a lossless image, also if only a part is decoded.
  std::uint64_t max_pixels = std::uint64_t{1} << 27;
};

/// An `image_decoder` for WebP. Decodes lossy and lossless images or regions to 8-bit RGB with
/// libwebp (CMake target `penstock::webp`).
///
/// Drops alpha, and ignores profiles and the EXIF orientation. The pixels of the whole image equal
/// the result of libwebp's `WebPDecodeRGB`. Rows below a region are not decoded.
///
/// Throws `image_truncated` if `bytes` are shorter than the length in the header or if the
/// compressed data end early; `image_corrupt`; `image_unsupported` for other formats and
/// animations; `image_too_large`; std::invalid_argument for a box outside the image; and
/// std::bad_alloc. Errors have offset 0 if the position is unknown. WebP has no checksum, so most
/// flipped bits in the compressed data result in other pixels instead of an error. Rows below a
/// box are not checked.
///
/// libwebp before 1.3.2 writes out of bounds for some malicious files (CVE-2023-4863), unless the
/// distributor has corrected it.
///
/// Not thread-safe. Copies have separate memory.
class webp_decoder {
 public:
  /// Creates a decoder with these options.
  explicit webp_decoder(const webp_options& options = {}) : options_(options) {}

  /// Returns true if `bytes` start with the WebP signature.
  [[nodiscard]] bool matches(std::span<const std::byte> bytes) const noexcept {
    return detail::image_format_of(bytes) == "WebP";
  }

  /// Parses the header. `channels` counts the alpha channel.
  [[nodiscard]] image_info info(std::span<const std::byte> bytes, std::string_view key) const {
    const std::string path{key};
    if (!matches(bytes)) {
      const std::string found = detail::found_image(bytes);
      if (bytes.size() < 12) throw image_truncated(path, 0, "a WebP image", found);
      throw image_unsupported(path, 0, "a WebP image", found);
    }
    if (detail::image_ends_early(bytes)) {
      throw image_truncated(path, bytes.size(),
                            "a WebP image of " +
                                std::to_string(8 + detail::number_at(bytes, 4, 4, false)) +
                                " bytes, as its header states",
                            "the end of its bytes");
    }
    ::WebPBitstreamFeatures features;
    check(::WebPGetFeatures(start_of(bytes), bytes.size(), &features), key);
    if (features.has_animation != 0) {
      throw image_unsupported(path, 0, "a WebP image without animation", "an animation");
    }
    const image_size size{static_cast<std::size_t>(features.width),
                          static_cast<std::size_t>(features.height)};
    if (std::uint64_t{size.width} * size.height > options_.max_pixels) {
      throw image_too_large(
          path, 0,
          "at most " + std::to_string(options_.max_pixels) + " pixels (webp_options::max_pixels)",
          detail::to_text(size));
    }
    return {size, features.has_alpha != 0 ? std::size_t{4} : std::size_t{3}, 1};
  }

  /// Decodes the part `box` of the image into `out`, which must have the box size and three
  /// channels.
  void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
              const pixels& out) {
    const image_size size = info(bytes, key).size;
    detail::require_box("webp_decoder", box, size, out);
    constexpr std::size_t max_pitch = (std::numeric_limits<int>::max)();
    if (box.size == size && out.pitch <= max_pitch) {
      decode_into(bytes, key, box, out);
      return;
    }
    const image_box with_margin = extended(box, size);
    const std::size_t pitch = 3 * with_margin.size.width;
    const std::size_t room = pitch * with_margin.size.height;
    if (lines_.size() < room) lines_.resize(room);
    const pixels lines{lines_.data(), with_margin.size, 3, pitch};
    decode_into(bytes, key, with_margin, lines);
    const pixels part =
        lines.part({box.left - with_margin.left, box.top - with_margin.top, box.size});
    for (std::size_t y = 0; y < box.size.height; ++y) {
      std::memcpy(out.row(y), part.row(y), 3 * box.size.width);
    }
  }

  /// Returns the options passed to the constructor.
  [[nodiscard]] const webp_options& options() const noexcept { return options_; }

 private:
  static const std::uint8_t* start_of(std::span<const std::byte> bytes) noexcept {
    return reinterpret_cast<const std::uint8_t*>(bytes.data());
  }

  // Adds a margin to `box`, which then begins at even positions. libwebp interpolates colors of
  // lossy images between two rows and columns, but does not use pixels outside its crop. libwebp
  // also moves a crop from odd to even positions.
  static image_box extended(const image_box& box, const image_size& size) noexcept {
    constexpr std::size_t margin = 2;
    const auto begin = [](std::size_t at) {
      return at < margin ? 0 : (at - margin) & ~std::size_t{1};
    };
    const std::size_t left = begin(box.left);
    const std::size_t top = begin(box.top);
    const std::size_t right = (std::min)(box.left + box.size.width + margin, size.width);
    const std::size_t bottom = (std::min)(box.top + box.size.height + margin, size.height);
    return {left, top, {right - left, bottom - top}};
  }

  // Decodes with libwebp's own crop, which must start at even positions. The pitch of `out` must
  // fit into an int.
  static void decode_into(std::span<const std::byte> bytes, std::string_view key,
                          const image_box& box, const pixels& out) {
    ::WebPDecoderConfig config;
    if (::WebPInitDecoderConfig(&config) == 0) {
      throw error("webp_decoder: libwebp has another ABI than its header webp/decode.h");
    }
    config.options.use_cropping = 1;
    config.options.crop_left = static_cast<int>(box.left);
    config.options.crop_top = static_cast<int>(box.top);
    config.options.crop_width = static_cast<int>(box.size.width);
    config.options.crop_height = static_cast<int>(box.size.height);
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = out.data;
    config.output.u.RGBA.stride = static_cast<int>(out.pitch);
    config.output.u.RGBA.size = out.pitch * (out.size.height - 1) + 3 * out.size.width;
    check(::WebPDecode(start_of(bytes), bytes.size(), &config), key);
  }

  // Throws the error of a status. Does nothing if the status is OK.
  static void check(::VP8StatusCode status, std::string_view key) {
    switch (status) {
      case VP8_STATUS_OK:
        return;
      case VP8_STATUS_OUT_OF_MEMORY:
        throw std::bad_alloc();
      case VP8_STATUS_SUSPENDED:
      case VP8_STATUS_NOT_ENOUGH_DATA:
        throw image_truncated(std::string{key}, 0, "the rest of the WebP image",
                              "the end of its data");
      case VP8_STATUS_UNSUPPORTED_FEATURE:
        throw image_unsupported(std::string{key}, 0, "a WebP image that libwebp supports",
                                "an unsupported feature");
      default:
        throw image_corrupt(std::string{key}, 0, "a valid WebP image",
                            "invalid data (VP8StatusCode " + std::to_string(status) + ")");
    }
  }

  webp_options options_;
  std::vector<std::uint8_t> lines_;
};

static_assert(image_decoder<webp_decoder>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
