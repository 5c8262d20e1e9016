// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/support/draw.hpp>
#include <penstock_ext/image/detail/augment/affine_sample.hpp>
#include <penstock_ext/image/detail/augment/affine_warp.hpp>
#include <penstock_ext/image/detail/geometry_check.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A turn about the middle of a picture, with a shift, a scale and a shear.
struct affine_change {
  double angle = 0;    ///< degrees, clockwise
  double right = 0;    ///< pixels to the right
  double down = 0;     ///< pixels downwards
  double scale = 1;    ///< more than 0; 2 makes all twice as large
  double shear_x = 0;  ///< degrees
  double shear_y = 0;  ///< degrees
};

/// What a turned pixel is made of.
enum class affine_filter {
  nearest,   ///< the one pixel in which its middle lies
  bilinear,  ///< the two by two around its middle
  bicubic,   ///< the four by four around it, by Keys' cubic with a = -1
};

/// How a turned picture is sampled. A picture that shrinks is not smoothed, as by Pillow.
struct affine_options {
  affine_filter filter = affine_filter::nearest;  ///< what a pixel is made of
  std::array<std::uint8_t, 4> fill{};             ///< a pixel of what lies outside, by channel
};

namespace detail {

/// Returns the matrix of `change` for a picture of `size`. Throws std::invalid_argument unless all
/// numbers are finite, scale > 0, and the shears are between -90 and 90 degrees.
inline affine_matrix matrix_of(const affine_change& change, const image_size& size) {
  if (!(std::isfinite(change.angle) && std::isfinite(change.right) && std::isfinite(change.down) &&
        std::isfinite(change.scale) && change.scale > 0 && std::fabs(change.shear_x) < 90 &&
        std::fabs(change.shear_y) < 90)) {
    throw std::invalid_argument(
        "affine: expected finite numbers, scale > 0, -90 < shear < 90, found scale = " +
        to_text(change.scale) + ", shear = " + to_text(change.shear_x) + ", " +
        to_text(change.shear_y));
  }
  const affine_turn turn{change.angle / 180, change.shear_x / 180, change.shear_y / 180,
                         change.scale};
  return turn.about(static_cast<double>(size.width) * 0.5, static_cast<double>(size.height) * 0.5,
                    change.right, change.down);
}

/// Calls `use` with the walk over `in`, turned by `m`.
template <std::size_t Channels, class Use>
void walk_over(const const_pixels& in, const affine_matrix& m, const affine_options& options,
               Use use) {
  const std::uint8_t* const fill = options.fill.data();
  if (options.filter == affine_filter::bilinear) {
    use(weighed_walk<Channels, bilinear_taps>{in, m, fill});
  } else if (options.filter == affine_filter::bicubic) {
    use(weighed_walk<Channels, bicubic_taps>{in, m, fill});
  } else if ((m.xy != 0 || m.yx != 0) && fits_fixed(m, in.size)) {
    use(nearest_walk<Channels, fixed_steps>{in, m, fill});
  } else {
    use(nearest_walk<Channels, double_steps>{in, m, fill});
  }
}

}  // namespace detail

/// Writes `in`, changed, to `out`, which has its size and channels and does not overlap it: to the
/// bit what Pillow's `transform(size, AFFINE, matrix, filter, fillcolor=fill)` gives for the same
/// matrix. That is torchvision's, within 1e-12: its sines may differ in the last bit, by which a
/// weighed value may be off by 1. No channel is treated as alpha.
/// Throws std::invalid_argument unless sizes and channels are equal, the channels are 1, 3 or 4,
/// all numbers are finite, scale > 0, and the shears are between -90 and 90 degrees.
inline void affine(const const_pixels& in, const affine_change& change, const pixels& out,
                   const affine_options& options = {}) {
  if (in.size != out.size || in.channels != out.channels ||
      (in.channels != 1 && in.channels != 3 && in.channels != 4)) {
    throw std::invalid_argument(
        "affine: expected two pictures of one size and 1, 3 or 4 channels, found " +
        detail::to_text(in.size) + " x " + std::to_string(in.channels) + " and " +
        detail::to_text(out.size) + " x " + std::to_string(out.channels));
  }
  detail::checked_size("affine", in.size);
  const detail::affine_matrix matrix = detail::matrix_of(change, in.size);
  const auto write = [&](auto walk) {
    for (std::size_t y = 0; y < out.size.height; ++y) {
      walk.begin_row();
      walk.write(out.row(y), out.size.width);
    }
  };
  if (in.channels == 1) detail::walk_over<1>(in, matrix, options, write);
  if (in.channels == 3) detail::walk_over<3>(in, matrix, options, write);
  if (in.channels == 4) detail::walk_over<4>(in, matrix, options, write);
}

/// How far `random_affine` goes; what is 0, or 1 for the scale, is left alone.
struct random_affine_options {
  double degrees = 0;            ///< turns from -degrees to degrees
  double translate_x = 0;        ///< shifts by up to this part of the width, either way
  double translate_y = 0;        ///< shifts by up to this part of the height, either way
  double scale_low = 1;          ///< the least scale
  double scale_high = 1;         ///< the greatest scale
  double shear_x = 0;            ///< shears from -shear_x to shear_x degrees
  double shear_y = 0;            ///< shears from -shear_y to shear_y degrees
  affine_options sampling = {};  ///< what a turned pixel is made of
};

/// Changes a picture by a random turn, shift, scale and shear: torchvision's `RandomAffine`,
/// with the nearest pixel and zeros outside unless told otherwise. Draws angle, shift to the right,
/// shift downwards, scale and shears, in this order, leaving out what the options leave alone;
/// shifts are rounded to pixels.
///
///     auto more = photos | penstock::map<photo>([turn = penstock::random_affine{{.degrees = 9}}](
///                                auto in, auto out, auto& random) {
///       turn(penstock::as_pixels(penstock::get<"image">(in)),
///            penstock::as_pixels(penstock::get<"image">(out)), random);
///     });
///
/// Called as const from many threads at once; every machine draws equal numbers.
class random_affine {
 public:
  /// Throws std::invalid_argument unless all are finite and not negative, shifts are at most 1,
  /// shears at most 89, degrees at most 360, and 1e-3 <= scale_low <= scale_high <= 1e3.
  explicit random_affine(const random_affine_options& options) : options_(options) {
    check("degrees", options.degrees, 0, 360);
    check("translate_x", options.translate_x, 0, 1);
    check("translate_y", options.translate_y, 0, 1);
    check("scale_low", options.scale_low, 1e-3, 1e3);
    check("scale_high", options.scale_high, options.scale_low, 1e3);
    check("shear_x", options.shear_x, 0, 89);
    check("shear_y", options.shear_y, 0, 89);
  }

  /// What is drawn for a picture of `size`.
  [[nodiscard]] affine_change draw(const image_size& size, sample_generator& random) const {
    affine_change change;
    change.angle = either_way(random, options_.degrees);
    const double right = options_.translate_x * static_cast<double>(size.width);
    const double down = options_.translate_y * static_cast<double>(size.height);
    change.right = std::nearbyint(either_way(random, right));
    change.down = std::nearbyint(either_way(random, down));
    if (options_.scale_low != 1 || options_.scale_high != 1) {
      change.scale = uniform(random, options_.scale_low, options_.scale_high);
    }
    change.shear_x = either_way(random, options_.shear_x);
    change.shear_y = either_way(random, options_.shear_y);
    return change;
  }

  /// Draws a change and writes `in`, changed, to `out`. Throws as `affine` does.
  void operator()(const const_pixels& in, const pixels& out, sample_generator& random) const {
    affine(in, draw(in.size, random), out, options_.sampling);
  }

  /// What a turned pixel is made of.
  [[nodiscard]] const affine_options& sampling() const noexcept { return options_.sampling; }

 private:
  static void check(const char* name, double value, double least, double most) {
    if (!(value >= least && value <= most)) {
      throw std::invalid_argument("random_affine: expected " + detail::to_text(least) +
                                  " <= " + name + " <= " + detail::to_text(most) + ", found " +
                                  detail::to_text(value));
    }
  }

  static double either_way(sample_generator& random, double reach) {
    return reach == 0 ? 0 : uniform(random, -reach, reach);
  }

  random_affine_options options_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
