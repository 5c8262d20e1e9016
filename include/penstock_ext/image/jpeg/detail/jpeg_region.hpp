// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <penstock_ext/image/jpeg/detail/jpeg_session.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A part of a picture at libjpeg, decoded so that it equals that part of the whole.
///
/// Colour is interpolated from neighbours where it is stored at less than full resolution, so two
/// columns more are decoded on each side, and two rows above, and dropped. Rows are skipped
/// from the picture's first one only and up to the start of a row group: libjpeg-turbo 2.1.5 has
/// faults with other skips.
///
/// Trivial, as the session is: its steps are run by `jpeg_session::run`.
struct jpeg_region {
  jpeg_session session;
  image_box box;         // of the scaled picture
  unsigned denominator;  // 1, 2, 4 or 8
  pixels out;
  std::uint8_t* line;       // memory for a row of `line_values` values
  std::size_t line_values;  // set by `start`
  std::size_t line_left;    // the column of the picture that a row starts with

  static constexpr std::size_t margin = 2;

  /// Reads the header.
  static void read_header(jpeg_session& session) {
    ::jpeg_read_header(&session.info, TRUE);
    if (session.info.data_precision != 8) session.fail(jpeg_failure::unsupported);
  }

  /// Starts to decode, and goes to where the region's rows and columns begin.
  static void start(jpeg_session& session) {
    jpeg_region& region = of(session);
    ::jpeg_decompress_struct& info = session.info;
    info.scale_num = 1;
    info.scale_denom = region.denominator;
    // What libjpeg does not turn into RGB itself.
    info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
    const bool many = ::jpeg_has_multiple_scans(&info) != 0;
    ::jpeg_start_decompress(&info);
    session.one_scan = !many;

    region.line_left = 0;
    if (!smooths(info)) {
      region.crop_columns();
      region.skip_rows();
    }
    region.line_values =
        std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components);
  }

  /// Decodes the rows of the region, into `line` where `goes_straight()` is false.
  static void read_rows(jpeg_session& session) {
    jpeg_region& region = of(session);
    ::jpeg_decompress_struct& info = session.info;
    const bool straight = region.goes_straight();
    const std::size_t end = region.box.top + region.box.size.height;
    while (info.output_scanline < end) {
      const std::size_t y = info.output_scanline;
      const bool is_inside = y >= region.box.top;
      std::uint8_t* to = is_inside ? region.out.row(y - region.box.top) : nullptr;
      JSAMPROW row = is_inside && straight ? to : region.line;
      if (::jpeg_read_scanlines(&info, &row, 1) != 1) session.fail(jpeg_failure::corrupt);
      if (is_inside && !straight) region.take_line(to);
    }
  }

  /// Whether libjpeg's rows are the region's, so that they need no copy. Rows above the region
  /// still need `line`.
  [[nodiscard]] bool goes_straight() const noexcept {
    return session.info.output_components == 3 && session.info.output_width == box.size.width;
  }

 private:
  // The session is the first member.
  static jpeg_region& of(jpeg_session& session) noexcept {
    return reinterpret_cast<jpeg_region&>(session);
  }

  // Whether libjpeg smooths over the coefficients that a progressive picture leaves out. It looks
  // at more neighbours then than a part has: the whole is decoded.
  static bool smooths(const ::jpeg_decompress_struct& info) noexcept {
    if (info.progressive_mode == 0 || info.coef_bits == nullptr) return false;
    for (int component = 0; component < info.num_components; ++component) {
      const int* bits = info.coef_bits[component];
      if (!std::all_of(bits, bits + 10, [](int missing) { return missing == 0; })) return true;
    }
    return false;
  }

  // Whether libjpeg-turbo 2.1.5 would take a component for narrower than it is, once columns are
  // cropped: one decoded at a larger scale than the rest, as happens at denominators above 1, and
  // yet to be interpolated.
  static bool miscounts_columns(const ::jpeg_decompress_struct& info) noexcept {
#if JPEG_LIB_VERSION >= 70
    const auto scale = [](const auto& of) { return of.DCT_h_scaled_size; };
    const int least = info.min_DCT_h_scaled_size;
#else
    const auto scale = [](const auto& of) { return of.DCT_scaled_size; };
    const int least = info.min_DCT_scaled_size;
#endif
    return std::any_of(info.comp_info, info.comp_info + info.num_components,
                       [&](const ::jpeg_component_info& of) {
                         return scale(of) != least &&
                                (of.h_samp_factor * scale(of) != info.max_h_samp_factor * least ||
                                 of.v_samp_factor * scale(of) != info.max_v_samp_factor * least);
                       });
  }

  void crop_columns() {
    if (miscounts_columns(session.info)) return;
    const std::size_t width = session.info.output_width;
    // Where a component keeps less than two columns, libjpeg-turbo interpolates all of them
    // otherwise.
    const std::size_t least = 3 * static_cast<std::size_t>(session.info.max_h_samp_factor);
    if (width <= least) return;
    const std::size_t left = (std::min)(box.left - (std::min)(margin, box.left), width - least);
    const std::size_t right =
        (std::min)((std::max)(box.left + box.size.width + margin, left + least), width);
    if (left == 0 && right == width) return;
    auto offset = static_cast<JDIMENSION>(left);
    auto count = static_cast<JDIMENSION>(right - left);
    ::jpeg_crop_scanline(&session.info, &offset, &count);
    line_left = offset;
  }

  void skip_rows() {
    const std::size_t group = static_cast<std::size_t>(session.info.max_v_samp_factor);
    std::size_t rows = box.top - (std::min)(margin, box.top);
    rows -= rows % group;
    if (rows > 0) ::jpeg_skip_scanlines(&session.info, static_cast<JDIMENSION>(rows));
  }

  void take_line(std::uint8_t* to) const noexcept {
    const std::size_t skipped = box.left - line_left;
    if (session.info.output_components == 3) {
      std::memcpy(to, line + 3 * skipped, 3 * box.size.width);
    } else {
      cmyk_to_rgb(line + 4 * skipped, to, box.size.width);
    }
  }

  // As Adobe writes them the values are inverted: 255 is no ink. Every CMYK picture is taken for
  // one of these, as Pillow does.
  static void cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i, from += 4, to += 3) {
      const unsigned light = from[3];
      for (int channel = 0; channel < 3; ++channel) {
        const unsigned product = (255u - from[channel]) * light + 128;
        to[channel] = static_cast<std::uint8_t>(light - ((product + (product >> 8)) >> 8));
      }
    }
  }
};

static_assert(std::is_trivially_destructible_v<jpeg_region>, "a longjmp must skip no destructor");
static_assert(std::is_standard_layout_v<jpeg_region>, "the session stands for its region");

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
