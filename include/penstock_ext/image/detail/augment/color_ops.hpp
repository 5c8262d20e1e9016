// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock/order/support/draw.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>
#include <penstock_ext/image/pixels.hpp>

// Pillow's arithmetic on colours: where a value is a float there, it is one here.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws std::invalid_argument unless `picture` has three channels.
inline void check_colours(const char* name, const pixels& picture) {
  if (picture.channels != 3) {
    throw std::invalid_argument(std::string{name} + ": expected a picture of 3 channels, found " +
                                std::to_string(picture.channels));
  }
}

/// Returns `factor` as Pillow takes it, a float. Throws std::invalid_argument unless it is finite
/// and not negative.
inline float checked_factor(const char* name, double factor) {
  if (!(factor >= 0 && factor <= double{(std::numeric_limits<float>::max)()})) {
    throw std::invalid_argument(std::string{name} + ": expected a finite factor >= 0, found " +
                                to_text(factor));
  }
  return static_cast<float>(factor);
}

/// Calls `change` with the first value of each pixel.
template <class Change>
void for_each_pixel(const pixels& picture, Change change) {
  for (std::size_t y = 0; y < picture.size.height; ++y) {
    std::uint8_t* at = picture.row(y);
    for (std::size_t x = 0; x < picture.size.width; ++x, at += 3) change(at);
  }
}

/// The grey of a colour.
inline std::uint8_t grey_of(const std::uint8_t* rgb) noexcept {
  return static_cast<std::uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >>
                                   16);
}

/// The mean of `count` greys, rounded; 0 of none.
inline std::uint8_t mean_of(std::uint64_t sum, std::size_t count) noexcept {
  if (count == 0) return 0;
  const double mean = static_cast<double>(sum) / static_cast<double>(count) + 0.5;
  return static_cast<std::uint8_t>(mean);
}

/// The sum of all greys.
inline std::uint64_t sum_of_greys(const pixels& picture) {
  std::uint64_t sum = 0;
  for_each_pixel(picture, [&sum](const std::uint8_t* rgb) { sum += grey_of(rgb); });
  return sum;
}

/// `from + part * (to - from)`, cut to a byte. The product is exact as a double, so that it is
/// rounded once, to a float, whatever the compiler fuses.
inline std::uint8_t blended(int from, int to, float part) noexcept {
  const auto step = static_cast<float>(double{part} * (to - from));
  const float value = static_cast<float>(from) + step;
  return value <= 0     ? std::uint8_t{0}
         : value >= 255 ? std::uint8_t{255}
                        : static_cast<std::uint8_t>(value);
}

/// What becomes of each value that is blended with one.
inline std::array<std::uint8_t, 256> blend_table(std::uint8_t from, float part) noexcept {
  std::array<std::uint8_t, 256> table;
  for (int value = 0; value < 256; ++value) {
    table[static_cast<std::size_t>(value)] = blended(from, value, part);
  }
  return table;
}

/// Puts each value's of `table` in its place.
inline void look_up(const pixels& picture, const std::array<std::uint8_t, 256>& table) {
  for_each_pixel(picture, [&table](std::uint8_t* rgb) {
    for (int c = 0; c < 3; ++c) rgb[c] = table[rgb[c]];
  });
}

/// Blends each pixel with its grey.
inline void blend_with_grey(const pixels& picture, float part) {
  for_each_pixel(picture, [part](std::uint8_t* rgb) {
    const std::uint8_t grey = grey_of(rgb);
    for (int c = 0; c < 3; ++c) rgb[c] = blended(grey, rgb[c], part);
  });
}

/// Makes each pixel grey.
inline void make_grey(const pixels& picture) {
  for_each_pixel(picture, [](std::uint8_t* rgb) { std::fill_n(rgb, 3, grey_of(rgb)); });
}

/// Colours as hue, saturation and value of a byte each, and back.
class hue_table {
 public:
  hue_table() noexcept {
    for (int hue = 0; hue < 256; ++hue) {
      const double place = static_cast<double>(hue) * 6 / 255;
      const int sixth = static_cast<int>(place);
      sectors_[static_cast<std::size_t>(hue)] = {sixth % 6, static_cast<float>(place - sixth)};
    }
  }

  /// Adds `steps` of 255 to the hue of a pixel.
  void turn(std::uint8_t* rgb, int steps) const noexcept {
    const int most = (std::max)({rgb[0], rgb[1], rgb[2]});
    const int least = (std::min)({rgb[0], rgb[1], rgb[2]});
    if (most == least) return;  // grey: no saturation
    const auto range = static_cast<float>(most - least);
    const auto saturation = static_cast<int>(double{range / static_cast<float>(most)} * 255);
    const int hue = static_cast<int>(double{hue_of(rgb, most, range)} * 255);
    write(rgb, static_cast<std::uint8_t>(hue + steps), saturation, most);
  }

 private:
  struct sector {
    int sixth;       // of the circle
    float fraction;  // of that
  };

  static float hue_of(const std::uint8_t* rgb, int most, float range) noexcept {
    const float red = static_cast<float>(most - rgb[0]) / range;
    const float green = static_cast<float>(most - rgb[1]) / range;
    const float blue = static_cast<float>(most - rgb[2]) / range;
    float sixths = 0;
    if (rgb[0] == most) {
      sixths = blue - green;
    } else if (rgb[1] == most) {
      sixths = static_cast<float>(2.0 + double{red} - double{blue});
    } else {
      sixths = static_cast<float>(4.0 + double{green} - double{red});
    }
    const double turned = double{sixths} / 6 + 1;
    return static_cast<float>(turned >= 1 ? turned - 1 : turned);
  }

  static std::uint8_t rounded_byte(double value) noexcept {
    const int whole = static_cast<int>(value);
    return static_cast<std::uint8_t>(value - whole >= 0.5 ? whole + 1 : whole);
  }

  void write(std::uint8_t* rgb, std::uint8_t hue, int saturation, int value) const noexcept {
    const sector& at = sectors_[hue];
    const auto part = static_cast<float>(saturation / 255.0);
    const float falling = static_cast<float>(double{part} * double{at.fraction});
    const auto v = static_cast<std::uint8_t>(value);
    const std::uint8_t p = rounded_byte(value * (1.0 - double{part}));
    const std::uint8_t q = rounded_byte(value * (1.0 - double{falling}));
    const std::uint8_t t =
        rounded_byte(value * (1.0 - rounded(double{part} * (1.0 - double{at.fraction}))));
    const std::uint8_t colours[6][3] = {{v, t, p}, {q, v, p}, {p, v, t},
                                        {p, q, v}, {t, p, v}, {v, p, q}};
    std::copy_n(colours[at.sixth], 3, rgb);
  }

  std::array<sector, 256> sectors_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
