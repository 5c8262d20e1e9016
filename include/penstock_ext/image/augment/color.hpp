// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>
#include <penstock_ext/image/pixels.hpp>

// In-place color changes of 8-bit RGB images. The results are bit-identical to Pillow's
// ImageEnhance and torchvision's functions for Pillow images, because the computations use float in
// the same places. All functions throw std::invalid_argument unless the image has three channels.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws std::invalid_argument unless `image` has three channels.
inline void check_colours(const char* name, const const_pixels& image) {
  if (image.channels != 3) {
    throw std::invalid_argument(std::string{name} + ": expected an image of 3 channels, found " +
                                std::to_string(image.channels));
  }
}

/// Returns `factor` as a float, as in Pillow. Throws std::invalid_argument unless it is finite and
/// not negative.
inline float checked_factor(const char* name, double factor) {
  if (!(factor >= 0 && factor <= double{(std::numeric_limits<float>::max)()})) {
    throw std::invalid_argument(std::string{name} + ": expected a finite factor >= 0, found " +
                                to_text(factor));
  }
  return static_cast<float>(factor);
}

/// Calls `change` with a pointer to the first channel of each pixel.
template <class Change>
void for_each_pixel(const pixels& image, Change change) {
  for (std::size_t y = 0; y < image.size.height; ++y) {
    std::uint8_t* at = image.row(y);
    for (std::size_t x = 0; x < image.size.width; ++x, at += 3) change(at);
  }
}

/// Returns the gray value of a color.
inline std::uint8_t grey_of(const std::uint8_t* rgb) noexcept {
  return static_cast<std::uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >>
                                   16);
}

/// Returns the rounded mean of `count` gray values, or 0 if `count` is 0.
inline std::uint8_t mean_of(std::uint64_t sum, std::size_t count) noexcept {
  if (count == 0) return 0;
  const double mean = static_cast<double>(sum) / static_cast<double>(count) + 0.5;
  return static_cast<std::uint8_t>(mean);
}

/// Returns the sum of the gray values of all pixels.
inline std::uint64_t sum_of_greys(const pixels& image) {
  std::uint64_t sum = 0;
  for_each_pixel(image, [&sum](const std::uint8_t* rgb) { sum += grey_of(rgb); });
  return sum;
}

/// Returns `from + part * (to - from)`, clamped and truncated to a byte. The product is exact in
/// double precision, so only one rounding to float occurs, even if the compiler contracts
/// operations.
inline std::uint8_t blended(int from, int to, float part) noexcept {
  const auto step = static_cast<float>(double{part} * (to - from));
  const float value = static_cast<float>(from) + step;
  return value <= 0     ? std::uint8_t{0}
         : value >= 255 ? std::uint8_t{255}
                        : static_cast<std::uint8_t>(value);
}

/// Returns a lookup table of all 256 values, each blended with `from`.
inline std::array<std::uint8_t, 256> blend_table(std::uint8_t from, float part) noexcept {
  std::array<std::uint8_t, 256> table;
  for (int value = 0; value < 256; ++value) {
    table[static_cast<std::size_t>(value)] = blended(from, value, part);
  }
  return table;
}

/// Replaces each channel value with its entry in `table`.
inline void look_up(const pixels& image, const std::array<std::uint8_t, 256>& table) {
  for_each_pixel(image, [&table](std::uint8_t* rgb) {
    for (int c = 0; c < 3; ++c) rgb[c] = table[rgb[c]];
  });
}

/// Blends each pixel with its gray value.
inline void blend_with_grey(const pixels& image, float part) {
  for_each_pixel(image, [part](std::uint8_t* rgb) {
    const std::uint8_t grey = grey_of(rgb);
    for (int c = 0; c < 3; ++c) rgb[c] = blended(grey, rgb[c], part);
  });
}

/// Converts each pixel to gray.
inline void make_grey(const pixels& image) {
  for_each_pixel(image, [](std::uint8_t* rgb) { std::fill_n(rgb, 3, grey_of(rgb)); });
}

/// Converts colors to 8-bit hue, saturation and value, and back.
class hue_table {
 public:
  hue_table() noexcept {
    for (int hue = 0; hue < 256; ++hue) {
      const double place = static_cast<double>(hue) * 6 / 255;
      const int sixth = static_cast<int>(place);
      sectors_[static_cast<std::size_t>(hue)] = {sixth % 6, static_cast<float>(place - sixth)};
    }
  }

  /// Adds `steps` to the hue of a pixel. A full turn has 255 steps.
  void turn(std::uint8_t* rgb, int steps) const noexcept {
    const int max = (std::max)({rgb[0], rgb[1], rgb[2]});
    const int min = (std::min)({rgb[0], rgb[1], rgb[2]});
    if (max == min) return;  // a gray pixel has no hue
    const auto range = static_cast<float>(max - min);
    const auto saturation = static_cast<int>(double{range / static_cast<float>(max)} * 255);
    const int hue = static_cast<int>(double{hue_of(rgb, max, range)} * 255);
    write(rgb, static_cast<std::uint8_t>(hue + steps), saturation, max);
  }

 private:
  struct sector {
    int sixth;       // sector of the hue circle
    float fraction;  // position within the sector
  };

  static float hue_of(const std::uint8_t* rgb, int max, float range) noexcept {
    const float red = static_cast<float>(max - rgb[0]) / range;
    const float green = static_cast<float>(max - rgb[1]) / range;
    const float blue = static_cast<float>(max - rgb[2]) / range;
    float sixths = 0;
    if (rgb[0] == max) {
      sixths = blue - green;
    } else if (rgb[1] == max) {
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

/// Blends with black. A factor of 0 returns black, 1 the original image, and 2 doubles the
/// brightness. Throws std::invalid_argument unless `factor` is finite and not negative.
inline void adjust_brightness(const pixels& image, double factor) {
  detail::check_colours("adjust_brightness", image);
  detail::look_up(image,
                  detail::blend_table(0, detail::checked_factor("adjust_brightness", factor)));
}

/// Blends with the image's mean gray. A factor of 0 returns the mean gray, 1 the original image,
/// and 2 doubles the contrast. Throws std::invalid_argument unless `factor` is finite and not
/// negative.
inline void adjust_contrast(const pixels& image, double factor) {
  detail::check_colours("adjust_contrast", image);
  const float part = detail::checked_factor("adjust_contrast", factor);
  const std::size_t count = image.size.width * image.size.height;
  const std::uint8_t mean = detail::mean_of(detail::sum_of_greys(image), count);
  detail::look_up(image, detail::blend_table(mean, part));
}

/// Blends with the grayscale image. A factor of 0 returns the grayscale image, 1 the original
/// image, and 2 doubles the saturation. Throws std::invalid_argument unless `factor` is finite and
/// not negative.
inline void adjust_saturation(const pixels& image, double factor) {
  detail::check_colours("adjust_saturation", image);
  const float part = detail::checked_factor("adjust_saturation", factor);
  detail::blend_with_grey(image, part);
}

/// Rotates the hue by `turn` turns, in steps of 1/255 turn. Throws std::invalid_argument unless
/// -0.5 <= turn <= 0.5.
inline void adjust_hue(const pixels& image, double turn) {
  detail::check_colours("adjust_hue", image);
  if (!(turn >= -0.5 && turn <= 0.5)) {
    throw std::invalid_argument("adjust_hue: expected a turn from -0.5 to 0.5, found " +
                                detail::to_text(turn));
  }
  const detail::hue_table hues;
  const int steps = static_cast<int>(turn * 255);
  detail::for_each_pixel(image, [&](std::uint8_t* rgb) { hues.turn(rgb, steps); });
}

/// Converts an image to gray with three equal channels: (19595 R + 38470 G + 7471 B) / 2^16,
/// rounded. Equals torchvision's `Grayscale(3)`. For example,
/// `photos | map(on_image<"image">(grayscale{}))`.
class grayscale {
 public:
  /// Converts `image` in place. Throws std::invalid_argument unless it has three channels.
  void operator()(const pixels& image) const {
    detail::check_colours("grayscale", image);
    detail::make_grey(image);
  }
};

/// Color properties that `color_jitter` can change.
enum class color_property {
  brightness,  ///< changed by `adjust_brightness`
  contrast,    ///< changed by `adjust_contrast`
  saturation,  ///< changed by `adjust_saturation`
  hue,         ///< changed by `adjust_hue`
};

/// A change of one color property.
struct color_change {
  color_property of = color_property::brightness;  ///< the changed property
  double by = 1;                                   ///< factor, or hue rotation in turns
};

/// A sequence of color changes, at most one for each property.
struct color_changes {
  std::array<color_change, 4> each{};  ///< only the first `count` elements are used
  std::size_t count = 0;               ///< number of changes
};

/// Parameter ranges of `color_jitter`. A value of 0 disables a property.
struct color_jitter_options {
  double brightness = 0;  ///< factor from max(0, 1 - brightness) to 1 + brightness
  double contrast = 0;    ///< factor from max(0, 1 - contrast) to 1 + contrast
  double saturation = 0;  ///< factor from max(0, 1 - saturation) to 1 + saturation
  double hue = 0;         ///< rotation by -hue to hue turns, at most 0.5
};

/// Changes brightness, contrast, saturation and hue by random amounts in random order, like
/// torchvision's `ColorJitter`. Draws the order first, and then the amount for each enabled
/// property, in option order.
///
///     auto train = photos | ps::map(ps::on_image<"image">(ps::color_jitter{{.brightness = 0.4}}));
///
/// Thread-safe if each thread has its own image and generator.
class color_jitter {
 public:
  /// Throws std::invalid_argument unless all options are finite and not negative, hue is at most
  /// 0.5, and the other options are at most 1e6.
  explicit color_jitter(const color_jitter_options& options) : options_(options) {
    check("brightness", options.brightness, 1e6);
    check("contrast", options.contrast, 1e6);
    check("saturation", options.saturation, 1e6);
    check("hue", options.hue, 0.5);
  }

  /// Draws the changes of an image and returns them in application order.
  [[nodiscard]] color_changes draw(sample_generator& random) const {
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    for (std::size_t left = 4; left > 1; --left) {
      std::swap(order[left - 1], order[uniform(random, std::size_t{0}, left - 1)]);
    }
    const double reach[] = {options_.brightness, options_.contrast, options_.saturation,
                            options_.hue};
    double by[4];
    for (std::size_t i = 0; i < 3; ++i) by[i] = factor(random, reach[i]);
    by[3] = reach[3] == 0 ? 0 : uniform(random, -reach[3], reach[3]);
    color_changes drawn;
    for (const std::size_t what : order) {
      if (reach[what] == 0) continue;
      drawn.each[drawn.count++] = {static_cast<color_property>(what), by[what]};
    }
    return drawn;
  }

  /// Changes `image` in place. Throws std::invalid_argument unless it has three channels.
  void operator()(const pixels& image, sample_generator& random) const {
    const color_changes drawn = draw(random);
    detail::check_colours("color_jitter", image);
    for (std::size_t i = 0; i < drawn.count; ++i) {
      const auto [of, by] = drawn.each[i];
      if (of == color_property::brightness) adjust_brightness(image, by);
      if (of == color_property::contrast) adjust_contrast(image, by);
      if (of == color_property::saturation) adjust_saturation(image, by);
      if (of == color_property::hue) adjust_hue(image, by);
    }
  }

 private:
  static void check(const char* name, double value, double max) {
    if (!(value >= 0 && value <= max)) {
      throw std::invalid_argument(std::string{"color_jitter: expected 0 <= "} + name + " <= " +
                                  detail::to_text(max) + ", found " + detail::to_text(value));
    }
  }

  static double factor(sample_generator& random, double reach) {
    return reach == 0 ? 1 : uniform(random, (std::max)(0.0, 1 - reach), 1 + reach);
  }

  color_jitter_options options_;
};

namespace detail {

/// The function object that `on_image` returns.
template <name Field, class Change>
class image_change {
 public:
  explicit image_change(Change change) : change_(std::move(change)) {}

  /// Changes the field of `sample`. Passes the generator if the change accepts one.
  template <class Sample, std::same_as<sample_generator>... Random>
    requires std::invocable<const Change&, const pixels&, Random&...>
  void operator()(const Sample& sample, Random&... random) const {
    change_(as_pixels(get<Field>(sample)), random...);
  }

 private:
  Change change_;
};

}  // namespace detail

/// Returns a function for `map` that applies `change` to the field `Field` of a sample. The field
/// must be an 8-bit image (H x W x C or H x W). Calls `change(pixels)` or `change(pixels,
/// sample_generator&)` through a const reference.
template <name Field, class Change>
[[nodiscard]] detail::image_change<Field, Change> on_image(Change change) {
  return detail::image_change<Field, Change>{std::move(change)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
