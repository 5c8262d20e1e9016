// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include <penstock/core/name.hpp>
#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/support/draw.hpp>
#include <penstock_ext/image/detail/augment/color_ops.hpp>
#include <penstock_ext/image/pixels.hpp>

// Colours of 8-bit RGB pictures, changed in place, to the bit as Pillow's ImageEnhance and
// torchvision's functions for Pillow's images do. All take pictures of three channels and throw
// std::invalid_argument for others.

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Blends with black: 0 gives black, 1 the picture, 2 twice as bright.
/// Throws std::invalid_argument unless `factor` is finite and not negative.
inline void adjust_brightness(const pixels& picture, double factor) {
  detail::check_colours("adjust_brightness", picture);
  detail::look_up(picture,
                  detail::blend_table(0, detail::checked_factor("adjust_brightness", factor)));
}

/// Blends with the picture's mean grey: 0 gives that, 1 the picture, 2 twice the contrast.
/// Throws std::invalid_argument unless `factor` is finite and not negative.
inline void adjust_contrast(const pixels& picture, double factor) {
  detail::check_colours("adjust_contrast", picture);
  const float part = detail::checked_factor("adjust_contrast", factor);
  const std::size_t count = picture.size.width * picture.size.height;
  const std::uint8_t mean = detail::mean_of(detail::sum_of_greys(picture), count);
  detail::look_up(picture, detail::blend_table(mean, part));
}

/// Blends with the grey picture: 0 gives that, 1 the picture, 2 colours twice as strong.
/// Throws std::invalid_argument unless `factor` is finite and not negative.
inline void adjust_saturation(const pixels& picture, double factor) {
  detail::check_colours("adjust_saturation", picture);
  const float part = detail::checked_factor("adjust_saturation", factor);
  detail::blend_with_grey(picture, part);
}

/// Turns the circle of hues by `turn` of itself, in 255 steps. Throws std::invalid_argument unless
/// -0.5 <= turn <= 0.5.
inline void adjust_hue(const pixels& picture, double turn) {
  detail::check_colours("adjust_hue", picture);
  if (!(turn >= -0.5 && turn <= 0.5)) {
    throw std::invalid_argument("adjust_hue: expected a turn from -0.5 to 0.5, found " +
                                detail::to_text(turn));
  }
  const detail::hue_table hues;
  const int steps = static_cast<int>(turn * 255);
  detail::for_each_pixel(picture, [&](std::uint8_t* rgb) { hues.turn(rgb, steps); });
}

/// Makes a picture grey that keeps three equal channels: (19595 R + 38470 G + 7471 B) / 2^16,
/// rounded: `photos | map(on_image<"image">(grayscale{}))`. torchvision: `Grayscale(3)`.
class grayscale {
 public:
  /// Changes `picture` in place.
  void operator()(const pixels& picture) const {
    detail::check_colours("grayscale", picture);
    detail::make_grey(picture);
  }
};

/// What of a picture's colours is changed.
enum class color_property {
  brightness,  ///< as `adjust_brightness` does
  contrast,    ///< as `adjust_contrast` does
  saturation,  ///< as `adjust_saturation` does
  hue,         ///< as `adjust_hue` does
};

/// A change of colours: a factor, or the turn of a hue.
struct color_change {
  color_property of = color_property::brightness;  ///< what is changed
  double by = 1;                                   ///< by how much
};

/// Changes to be made one after the other, at most one a property.
struct color_changes {
  std::array<color_change, 4> each{};  ///< the first `count` are meant
  std::size_t count = 0;               ///< how many there are
};

/// How far `color_jitter` goes; 0 leaves a property alone.
struct color_jitter_options {
  double brightness = 0;  ///< factors from max(0, 1 - brightness) to 1 + brightness
  double contrast = 0;    ///< factors from max(0, 1 - contrast) to 1 + contrast
  double saturation = 0;  ///< factors from max(0, 1 - saturation) to 1 + saturation
  double hue = 0;         ///< turns from -hue to hue, at most 0.5
};

/// Changes brightness, contrast, saturation and hue by random factors in random order:
/// torchvision's `ColorJitter`. Draws the order first, then a factor for each property that is
/// changed, in the order of the options.
///
///     auto train = photos | ps::map(ps::on_image<"image">(ps::color_jitter{{.brightness = 0.4}}));
///
/// Called as const from many threads at once, each with its own picture and random bits.
class color_jitter {
 public:
  /// Throws std::invalid_argument unless all are finite and not negative, and hue is at most 0.5.
  explicit color_jitter(const color_jitter_options& options) : options_(options) {
    check("brightness", options.brightness, 1e6);
    check("contrast", options.contrast, 1e6);
    check("saturation", options.saturation, 1e6);
    check("hue", options.hue, 0.5);
  }

  /// What is drawn for a picture, in the order in which it is changed.
  [[nodiscard]] color_changes draw(sample_generator& random) const {
    std::array<int, 4> order{0, 1, 2, 3};
    for (std::size_t left = 4; left > 1; --left) {
      std::swap(order[left - 1], order[uniform(random, std::size_t{0}, left - 1)]);
    }
    const double reach[] = {options_.brightness, options_.contrast, options_.saturation,
                            options_.hue};
    double by[4];
    for (std::size_t i = 0; i < 3; ++i) by[i] = factor(random, reach[i]);
    by[3] = reach[3] == 0 ? 0 : uniform(random, -reach[3], reach[3]);
    color_changes drawn;
    for (const int what : order) {
      const auto at = static_cast<std::size_t>(what);
      if (reach[at] != 0) drawn.each[drawn.count++] = {static_cast<color_property>(what), by[at]};
    }
    return drawn;
  }

  /// Changes `picture` in place. Throws std::invalid_argument unless it has three channels.
  void operator()(const pixels& picture, sample_generator& random) const {
    const color_changes drawn = draw(random);
    detail::check_colours("color_jitter", picture);
    for (std::size_t i = 0; i < drawn.count; ++i) {
      const auto [of, by] = drawn.each[i];
      if (of == color_property::brightness) adjust_brightness(picture, by);
      if (of == color_property::contrast) adjust_contrast(picture, by);
      if (of == color_property::saturation) adjust_saturation(picture, by);
      if (of == color_property::hue) adjust_hue(picture, by);
    }
  }

 private:
  static void check(const char* name, double value, double most) {
    if (!(value >= 0 && value <= most)) {
      throw std::invalid_argument(std::string{"color_jitter: expected 0 <= "} + name + " <= " +
                                  detail::to_text(most) + ", found " + detail::to_text(value));
    }
  }

  static double factor(sample_generator& random, double reach) {
    return reach == 0 ? 1 : uniform(random, (std::max)(0.0, 1 - reach), 1 + reach);
  }

  color_jitter_options options_;
};

namespace detail {

/// What `on_image` returns: a function of a sample, for `map`.
template <name Field, class Change>
class image_change {
 public:
  /// Holds the change.
  explicit image_change(Change change) : change_(std::move(change)) {}

  /// Changes the field of `sample`, by random bits where the change takes some.
  template <class Sample, std::same_as<sample_generator>... Random>
    requires std::invocable<const Change&, const pixels&, Random&...>
  void operator()(const Sample& sample, Random&... random) const {
    change_(as_pixels(get<Field>(sample)), random...);
  }

 private:
  Change change_;
};

}  // namespace detail

/// A function for `map` that passes the 8-bit picture (H x W x C or H x W) in the field `Field` of
/// a sample to `change(pixels)` or `change(pixels, sample_generator&)`, which is called as const.
template <name Field, class Change>
[[nodiscard]] detail::image_change<Field, Change> on_image(Change change) {
  return detail::image_change<Field, Change>{std::move(change)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
