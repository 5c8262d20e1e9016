// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/detail/decode/decode_formats.hpp>
#include <penstock_ext/image/detail/decode/decode_orientation.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/image_error.hpp>
#include <penstock_ext/image/jpeg/detail/jpeg_exif.hpp>
#include <penstock_ext/image/jpeg/detail/jpeg_region.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a `jpeg_decoder` takes and refuses.
struct jpeg_options {
  /// Damage among the rows that are decoded is an error. False: filled up as libjpeg and Pillow do,
  /// so that the pixels after the damage are wrong; what ends too early is an error all the same.
  bool strict = true;
  /// Turn pictures upright as their EXIF block says. False: as they are stored, as torchvision
  /// does.
  bool orientation = false;
  /// A picture of more pixels is refused before memory is taken. Each takes three bytes.
  std::uint64_t most_pixels = std::uint64_t{1} << 27;
  /// A progressive picture whose coefficients take more bytes is refused.
  std::uint64_t most_bytes = std::uint64_t{1} << 30;
  /// A picture with more scans is refused: each goes over all of it.
  int most_scans = 500;
};

/// Decodes JPEG pictures, or parts of them, to 8-bit RGB by libjpeg-turbo (2.1 or newer; the CMake
/// target `penstock::jpeg`). An `image_decoder`.
///
/// Baseline, extended, progressive and arithmetic-coded pictures of 8 bits, grey, YCbCr, RGB, and
/// CMYK and YCCK (as Adobe stores them) turned into RGB as Pillow's `convert("RGB")` does. Only the
/// rows and columns that a box needs are decoded; inside it the values are those of the whole
/// picture, decoded by the same libjpeg with its default settings: the exact inverse transform and
/// interpolated colour.
///
/// Throws `image_truncated`, `image_corrupt`, `image_unsupported`, `image_too_large`;
/// std::invalid_argument for a box outside the picture, std::bad_alloc. Bytes that libjpeg skips
/// between markers are no error, nor is a missing end mark when every row is there, and damage
/// after the last row of a box goes unnoticed.
///
/// One object is for one thread at a time. libjpeg's own objects are made anew for every picture:
/// tables of an earlier picture never reach a later one that lacks its own.
class jpeg_decoder {
 public:
  /// With the default options unless told otherwise.
  explicit jpeg_decoder(const jpeg_options& options = {}) : options_(options) {}
  /// Copies the options only.
  jpeg_decoder(const jpeg_decoder& other) : options_(other.options_) {}
  /// Copies the options only.
  jpeg_decoder& operator=(const jpeg_decoder& other) {
    options_ = other.options_;
    return *this;
  }
  ~jpeg_decoder() = default;

  /// Whether the bytes start as a JPEG picture does.
  [[nodiscard]] bool matches(std::span<const std::byte> bytes) const noexcept {
    return detail::image_format_of(bytes) == "JPEG";
  }

  /// What the header says; `size` and `orientation` as `decode` will have it.
  [[nodiscard]] image_info info(std::span<const std::byte> bytes, std::string_view key) {
    const open_session session{*this, bytes, key};
    return info_of(bytes);
  }

  /// Decodes the part `box` of the picture into `out`, which has the box's size and three channels.
  void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
              const pixels& out) {
    decode(bytes, key, box, out, 1);
  }

  /// Decodes a part of the picture at 1 / `denominator` of its width and height, rounded up;
  /// `denominator` is 1, 2, 4 or 8 and `box` is in pixels of the smaller picture.
  void decode(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
              const pixels& out, unsigned denominator) {
    if (denominator != 1 && denominator != 2 && denominator != 4 && denominator != 8) {
      throw std::invalid_argument("jpeg_decoder: expected a denominator of 1, 2, 4 or 8, found " +
                                  std::to_string(denominator));
    }
    const open_session session{*this, bytes, key};
    const image_info info = info_of(bytes);
    const image_size size = detail::scaled_down(info.size, denominator);
    detail::require_box("jpeg_decoder", box, size, out);
    const detail::decode_orientation orientation{info.orientation};
    if (orientation.is_upright()) {
      decode_stored(bytes, key, box, out, denominator);
      return;
    }
    const image_size stored = orientation.turned(box.size);
    turned_.resize(stored.width * stored.height * 3);
    const pixels scratch{turned_.data(), stored, 3, stored.width * 3};
    decode_stored(bytes, key, orientation.stored(box, size), scratch, denominator);
    orientation.turn(scratch, out);
  }

  /// What the object was made with.
  [[nodiscard]] const jpeg_options& options() const noexcept { return options_; }

 private:
  // From the header on to the end of the picture.
  class open_session {
   public:
    open_session(jpeg_decoder& decoder, std::span<const std::byte> bytes, std::string_view key)
        : session_(decoder.region_.session) {
      const auto most_bytes = (std::min)(decoder.options_.most_bytes,
                                         std::uint64_t{(std::numeric_limits<long>::max)()});
      session_.strict = decoder.options_.strict;
      session_.most_scans = decoder.options_.most_scans;
      // The destructor of an object whose constructor throws does not run.
      try {
        decoder.check(session_.open(bytes, static_cast<long>(most_bytes)), bytes, key);
        decoder.check(session_.run<detail::jpeg_region::read_header>(), bytes, key);
        decoder.check_header(bytes, key);
      } catch (...) {
        session_.close();
        throw;
      }
    }
    open_session(const open_session&) = delete;
    open_session& operator=(const open_session&) = delete;
    ~open_session() { session_.close(); }

   private:
    detail::jpeg_session& session_;
  };

  [[nodiscard]] image_info info_of(std::span<const std::byte> bytes) const noexcept {
    const ::jpeg_decompress_struct& info = region_.session.info;
    const int number = options_.orientation ? detail::jpeg_orientation(bytes) : 1;
    return {detail::decode_orientation{number}.turned({info.image_width, info.image_height}),
            static_cast<std::size_t>(info.num_components), number};
  }

  void decode_stored(std::span<const std::byte> bytes, std::string_view key, const image_box& box,
                     const pixels& out, unsigned denominator) {
    region_.box = box;
    region_.out = out;
    region_.denominator = denominator;
    check(region_.session.run<detail::jpeg_region::start>(), bytes, key);
    if (line_.size() < region_.line_values) line_.resize(region_.line_values);
    region_.line = line_.data();
    check(region_.session.run<detail::jpeg_region::read_rows>(), bytes, key);
  }

  void check_header(std::span<const std::byte> bytes, std::string_view key) const {
    const ::jpeg_decompress_struct& info = region_.session.info;
    if (info.jpeg_color_space == JCS_UNKNOWN) {
      throw image_unsupported(std::string{key}, region_.session.offset(),
                              "a JPEG picture of 1, 3 or 4 components",
                              std::to_string(info.num_components) + " components");
    }
    const std::uint64_t count = std::uint64_t{info.image_width} * info.image_height;
    if (count > options_.most_pixels) {
      throw image_too_large(
          std::string{key}, region_.session.offset(),
          "at most " + std::to_string(options_.most_pixels) + " pixels (jpeg_options::most_pixels)",
          std::to_string(info.image_width) + " x " + std::to_string(info.image_height));
    }
    // A block, of at most 32 x 32 pixels, takes a bit at least by Huffman's code.
    constexpr std::uint64_t most_pixels_a_byte = std::uint64_t{8} * 32 * 32;
    if (info.arith_code == 0 && count / most_pixels_a_byte > bytes.size()) {
      throw image_truncated(std::string{key}, bytes.size(),
                            "at least " + std::to_string(count / most_pixels_a_byte) +
                                " bytes for a JPEG picture of " + std::to_string(info.image_width) +
                                " x " + std::to_string(info.image_height) + " pixels",
                            "the end of its bytes");
    }
  }

  // Throws what the step's failure is, if it is one.
  void check(bool fine, std::span<const std::byte> bytes, std::string_view key) const {
    if (fine) return;
    const detail::jpeg_session& session = region_.session;
    const std::string path{key};
    const std::string message = session.message;
    const std::uint64_t at = session.offset();
    if (session.failure == detail::jpeg_failure::no_memory) throw std::bad_alloc();
    if (!matches(bytes)) {
      if (bytes.size() < 3) {
        throw image_truncated(path, 0, "a JPEG picture", detail::found_image(bytes));
      }
      throw image_unsupported(path, 0, "a JPEG picture", detail::found_image(bytes));
    }
    switch (session.failure) {
      case detail::jpeg_failure::truncated:
        throw image_truncated(path, at, "the rest of the JPEG picture", "the end of its bytes");
      case detail::jpeg_failure::unsupported:
        throw image_unsupported(path, at, "a JPEG picture of 8 bits that libjpeg can decode",
                                message.empty() ? "other values a pixel" : message);
      case detail::jpeg_failure::too_many_scans:
        throw image_too_large(
            path, at,
            "at most " + std::to_string(options_.most_scans) + " scans (jpeg_options::most_scans)",
            "more of them");
      case detail::jpeg_failure::too_large:
        throw image_too_large(path, at,
                              "a JPEG picture that libjpeg decodes within " +
                                  std::to_string(options_.most_bytes) +
                                  " bytes (jpeg_options::most_bytes)",
                              message);
      default:
        throw image_corrupt(path, at, "a sound JPEG picture", message);
    }
  }

  jpeg_options options_;
  detail::jpeg_region region_{};
  std::vector<std::uint8_t> line_;
  std::vector<std::uint8_t> turned_;
};

static_assert(scaled_image_decoder<jpeg_decoder>);

/// Decodes the JPEG pictures of a blob source, see `decode_images`:
/// `photos | decode_jpeg(random_resized_crop{224})`.
template <image_geometry Geometry>
[[nodiscard]] auto decode_jpeg(Geometry geometry, const jpeg_options& jpeg = {},
                               const decode_options& options = {}) {
  return decode_images(std::move(geometry), options, jpeg_decoder{jpeg});
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
