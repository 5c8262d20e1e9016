// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include <penstock/core/tensor_view.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Width and height of an image, in pixels.
struct image_size {
  std::size_t width = 0;   ///< number of columns
  std::size_t height = 0;  ///< number of rows

  friend constexpr bool operator==(const image_size&, const image_size&) = default;
};

/// A rectangle in an image, in pixels from the top left corner.
struct image_box {
  std::size_t left = 0;  ///< the first column
  std::size_t top = 0;   ///< the first row
  image_size size;       ///< the numbers of columns and rows

  friend constexpr bool operator==(const image_box&, const image_box&) = default;
};

namespace detail {

/// Formats a size as "640 x 480".
[[nodiscard]] inline std::string to_text(const image_size& size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height);
}

/// Formats a box as "20 x 10 at (3, 4)".
[[nodiscard]] inline std::string to_text(const image_box& box) {
  return to_text(box.size) + " at (" + std::to_string(box.left) + ", " + std::to_string(box.top) +
         ")";
}

/// Returns true if `box` is not empty and lies inside an image of `size`.
[[nodiscard]] constexpr bool is_part_of(const image_box& box, const image_size& size) noexcept {
  return box.size.width > 0 && box.size.height > 0 && box.left < size.width &&
         box.top < size.height && box.size.width <= size.width - box.left &&
         box.size.height <= size.height - box.top;
}

}  // namespace detail

/// A non-owning view of an image in HWC layout. Each pixel has `channels` adjacent values, and
/// consecutive rows are `pitch` values apart. `Value` is std::uint8_t, std::uint16_t or float,
/// and is const for read-only images.
template <class Value>
struct basic_pixels {
  Value* data = nullptr;     ///< the first value of the first row
  image_size size;           ///< the numbers of columns and rows
  std::size_t channels = 3;  ///< values per pixel: 3 for RGB, 1 for gray
  std::size_t pitch = 0;     ///< distance between the starts of two rows, in values

  /// Returns the first value of row `y`.
  [[nodiscard]] constexpr Value* row(std::size_t y) const noexcept { return data + y * pitch; }
  /// Returns a view of the part `box`, which must lie inside the image.
  [[nodiscard]] constexpr basic_pixels part(const image_box& box) const noexcept {
    return {row(box.top) + box.left * channels, box.size, channels, pitch};
  }
  /// Converts to a read-only view.
  template <class Reading>
    requires(!std::is_const_v<Value> && std::is_same_v<Reading, const Value>)
  constexpr operator basic_pixels<Reading>() const noexcept {  // NOLINT: implicit by intent
    return {data, size, channels, pitch};
  }
};

/// A writable view of an 8-bit image.
using pixels = basic_pixels<std::uint8_t>;
/// A read-only view of an 8-bit image.
using const_pixels = basic_pixels<const std::uint8_t>;

/// Returns a view of a tensor with the extents height x width x channels or height x width.
template <class Value, std::size_t... Extents>
  requires(sizeof...(Extents) == 2 || sizeof...(Extents) == 3)
[[nodiscard]] constexpr basic_pixels<Value> as_pixels(
    const tensor_view<Value, Extents...>& view) noexcept {
  const std::size_t channels = [&]() -> std::size_t {
    if constexpr (sizeof...(Extents) == 3) {
      return view.extent(2);
    } else {
      return 1;
    }
  }();
  return {view.data(), {view.extent(1), view.extent(0)}, channels, view.extent(1) * channels};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
