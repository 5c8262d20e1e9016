// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How a stored picture is turned to stand upright, by EXIF's number from 1 to 8: rows and columns
/// change places (5 to 8), then left and right (2, 3, 6, 7), then top and bottom (3, 4, 7, 8).
class decode_orientation {
 public:
  /// `number` must be one of 1 to 8.
  constexpr explicit decode_orientation(int number) noexcept
      : transposed_(number >= 5),
        left_right_(number == 2 || number == 3 || number == 6 || number == 7),
        top_bottom_(number == 3 || number == 4 || number == 7 || number == 8) {}

  /// Whether the picture stands upright already.
  [[nodiscard]] constexpr bool is_upright() const noexcept {
    return !transposed_ && !left_right_ && !top_bottom_;
  }

  /// The upright picture's size, from that of the stored one; and the other way round.
  [[nodiscard]] constexpr image_size turned(image_size size) const noexcept {
    if (transposed_) std::swap(size.width, size.height);
    return size;
  }

  /// Where `box` of the upright picture of size `upright` lies in the stored one.
  [[nodiscard]] constexpr image_box stored(image_box box,
                                           const image_size& upright) const noexcept {
    if (left_right_) box.left = upright.width - box.left - box.size.width;
    if (top_bottom_) box.top = upright.height - box.top - box.size.height;
    if (transposed_) {
      std::swap(box.left, box.top);
      box.size = turned(box.size);
    }
    return box;
  }

  /// Writes the stored pixels `in` to `out` upright, which has the size `turned(in.size)`.
  constexpr void turn(const const_pixels& in, const pixels& out) const noexcept {
    for (std::size_t y = 0; y < out.size.height; ++y) {
      std::uint8_t* to = out.row(y);
      const std::size_t v = top_bottom_ ? out.size.height - 1 - y : y;
      for (std::size_t x = 0; x < out.size.width; ++x) {
        const std::size_t u = left_right_ ? out.size.width - 1 - x : x;
        const std::uint8_t* from =
            transposed_ ? in.row(u) + v * in.channels : in.row(v) + u * in.channels;
        for (std::size_t channel = 0; channel < in.channels; ++channel) *to++ = from[channel];
      }
    }
  }

 private:
  bool transposed_;
  bool left_right_;
  bool top_bottom_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
