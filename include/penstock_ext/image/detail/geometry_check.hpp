// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The longest side of a picture: what a float counts without a gap, as Pillow's sizes are floats.
inline constexpr std::size_t longest_side = std::size_t{1} << 24;

/// "640 x 480".
inline std::string to_text(const image_size& size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height);
}

/// "20 x 10 at (3, 4)".
inline std::string to_text(const image_box& box) {
  return to_text(box.size) + " at (" + std::to_string(box.left) + ", " + std::to_string(box.top) +
         ")";
}

/// Whether both sides are of 1 to `longest_side` pixels.
inline bool has_pixels(const image_size& size) noexcept {
  return size.width - 1 < longest_side && size.height - 1 < longest_side;
}

/// Returns `size`, of the picture or of the result of the geometry `name`. Throws
/// std::invalid_argument unless both sides are of 1 to 2^24 pixels.
inline const image_size& checked_size(const char* name, const image_size& size) {
  if (!has_pixels(size)) {
    throw std::invalid_argument(std::string{name} + ": expected sides of 1 to 2^24 pixels, found " +
                                to_text(size));
  }
  return size;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
