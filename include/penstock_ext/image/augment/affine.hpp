// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An affine map from output pixels to input positions. The input x of output pixel (x, y) is xx *
/// x + xy * y + x0.
struct affine_matrix {
  double xx;
  double xy;
  double x0;
  double yx;
  double yy;
  double y0;
};

/// Returns sin(pi * x).
inline double sine_of_half_turns(double x) noexcept {
  const double turns = x - 2 * std::floor(x / 2);  // in [0, 2]
  return turns <= 1 ? sin_pi(turns) : -sin_pi(turns - 1);
}

/// Fixed-point steps with 16 fractional bits. Pillow uses them for rotations whose coordinates fit
/// into 32 bits.
struct fixed_steps {
  using number = std::int64_t;
  static number from(double value) noexcept {
    return static_cast<number>(std::floor(value * 65536 + 0.5));
  }
  static bool lies_below(number at, std::size_t size) noexcept {
    return at >= 0 && static_cast<std::size_t>(at >> 16) < size;
  }
  static std::size_t whole(number at) noexcept { return static_cast<std::size_t>(at >> 16); }
};

/// Floating-point steps. Pillow uses them if coordinates do not fit into 32 bits, or for images
/// without rotation and shear.
struct double_steps {
  using number = double;
  static number from(double value) noexcept { return value; }
  static bool lies_below(number at, std::size_t size) noexcept {
    return at >= 0 && at < static_cast<double>(size);
  }
  static std::size_t whole(number at) noexcept { return static_cast<std::size_t>(at); }
};

/// Returns true if the input positions of all corners fit into the 16 integer bits, including the
/// sign.
inline bool fits_fixed(const affine_matrix& m, const image_size& size) noexcept {
  for (const double x : {0.0, static_cast<double>(size.width)}) {
    for (const double y : {0.0, static_cast<double>(size.height)}) {
      const double from_x = rounded(x * m.xx) + rounded(y * m.xy) + m.x0;
      const double from_y = rounded(x * m.yx) + rounded(y * m.yy) + m.y0;
      if (!(std::fabs(from_x) < 32768 && std::fabs(from_y) < 32768)) return false;
    }
  }
  return true;
}

/// Iterates row by row over a transformed image with nearest-neighbor sampling. Positions are
/// running sums, computed as in Pillow. Every crop of the output is bit-identical to the same part
/// of the whole output.
template <std::size_t Channels, class Steps>
class nearest_walk {
 public:
  /// Starts at the first row of `in`, transformed by `m`. Pixels outside `in` have the value
  /// `fill`.
  nearest_walk(const const_pixels& in, const affine_matrix& m, const std::uint8_t* fill) noexcept
      : in_(in),
        fill_(fill),
        row_x_(Steps::from(m.x0 + m.xx * 0.5 + m.xy * 0.5)),
        row_y_(Steps::from(m.y0 + m.yx * 0.5 + m.yy * 0.5)),
        xx_(Steps::from(m.xx)),
        xy_(Steps::from(m.xy)),
        yx_(Steps::from(m.yx)),
        yy_(Steps::from(m.yy)) {}

  /// Moves to the first pixel of the next row.
  void begin_row() noexcept {
    at_x_ = row_x_;
    at_y_ = row_y_;
    row_x_ += xy_;
    row_y_ += yy_;
  }
  /// Skips `count` pixels of the row, one at a time, because a multiplication would be rounded
  /// differently.
  void skip(std::size_t count) noexcept {
    for (; count > 0; --count, at_x_ += xx_, at_y_ += yx_) {
    }
  }
  /// Writes the next `count` pixels of the row.
  void write(std::uint8_t* to, std::size_t count) noexcept {
    number x = at_x_;
    number y = at_y_;
    for (; count > 0; --count, to += Channels, x += xx_, y += yx_) {
      const bool inside =
          Steps::lies_below(x, in_.size.width) && Steps::lies_below(y, in_.size.height);
      std::memcpy(to, inside ? in_.row(Steps::whole(y)) + Steps::whole(x) * Channels : fill_,
                  Channels);
    }
    at_x_ = x;
    at_y_ = y;
  }

 private:
  using number = typename Steps::number;

  const_pixels in_;
  const std::uint8_t* fill_;
  number row_x_;
  number row_y_;
  number xx_;
  number xy_;
  number yx_;
  number yy_;
  number at_x_ = 0;
  number at_y_ = 0;
};

/// The two pixels around a position along one axis.
struct bilinear_taps {
  static constexpr std::ptrdiff_t before = 0;  // the first tap contains the position
  static constexpr std::size_t count = 2;

  /// Interpolates between `v[0]` and `v[1]`.
  static double at(const double (&v)[count], double part) noexcept {
    return v[0] + rounded((v[1] - v[0]) * part);
  }
  static std::uint8_t to_byte(double value) noexcept { return static_cast<std::uint8_t>(value); }
};

/// The four pixels around a position along one axis. The interpolation between the two middle
/// pixels is cubic with a = -1.
struct bicubic_taps {
  static constexpr std::ptrdiff_t before = 1;
  static constexpr std::size_t count = 4;

  /// Interpolates between `v[1]` and `v[2]`.
  static double at(const double (&v)[count], double part) noexcept {
    const double slope = v[2] - v[0];
    const double second = 2 * (v[0] - v[1]) + v[2] - v[3];
    const double third = v[1] - v[0] - v[2] + v[3];
    return v[1] + rounded(part * (slope + rounded(part * (second + rounded(part * third)))));
  }
  static std::uint8_t to_byte(double value) noexcept {
    return static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
  }
};

/// Iterates over a transformed image like `nearest_walk`, but interpolates between the pixels
/// around each position. Repeats the pixels at the edges.
template <std::size_t Channels, class Taps>
class weighed_walk {
 public:
  /// Starts at the first row of `in`, transformed by `m`. Pixels outside `in` have the value
  /// `fill`.
  weighed_walk(const const_pixels& in, const affine_matrix& m, const std::uint8_t* fill) noexcept
      : in_(in), m_(m), fill_(fill) {}

  /// Moves to the first pixel of the next row.
  void begin_row() noexcept {
    x_ = 0.5;
    ++y_;
  }
  /// Skips `count` pixels of the row.
  void skip(std::size_t count) noexcept { x_ += static_cast<double>(count); }
  /// Writes the next `count` pixels of the row.
  void write(std::uint8_t* to, std::size_t count) noexcept {
    const double along_x = rounded(m_.xy * y_);
    const double along_y = rounded(m_.yy * y_);
    const auto width = static_cast<double>(in_.size.width);
    const auto height = static_cast<double>(in_.size.height);
    for (; count > 0; --count, to += Channels, ++x_) {
      const double x = rounded(m_.xx * x_) + along_x + m_.x0;
      const double y = rounded(m_.yx * x_) + along_y + m_.y0;
      if (x >= 0 && x < width && y >= 0 && y < height) {
        write_at(x - 0.5, y - 0.5, to);
      } else {
        std::memcpy(to, fill_, Channels);
      }
    }
  }

 private:
  static constexpr std::size_t taps = Taps::count;

  // Writes the tap indices around the position `at` to `places`. `at` must be at least -0.5.
  // Returns the distance from the middle tap to `at`.
  static double place(double at, std::size_t length, std::ptrdiff_t (&places)[taps]) noexcept {
    const std::ptrdiff_t whole = at < 0 ? -1 : static_cast<std::ptrdiff_t>(at);
    const auto last = static_cast<std::ptrdiff_t>(length) - 1;
    for (std::size_t i = 0; i < taps; ++i) {
      places[i] = std::clamp<std::ptrdiff_t>(whole - Taps::before + static_cast<std::ptrdiff_t>(i),
                                             0, last);
    }
    return at - static_cast<double>(whole);
  }

  void write_at(double x, double y, std::uint8_t* to) const noexcept {
    std::ptrdiff_t columns[taps];
    std::ptrdiff_t rows[taps];
    const double right = place(x, in_.size.width, columns);
    const double down = place(y, in_.size.height, rows);
    for (std::size_t c = 0; c < Channels; ++c) {
      double of_rows[taps];
      for (std::size_t r = 0; r < taps; ++r) {
        const std::uint8_t* const row = in_.row(static_cast<std::size_t>(rows[r])) + c;
        double values[taps];
        for (std::size_t i = 0; i < taps; ++i) {
          values[i] = row[columns[i] * static_cast<std::ptrdiff_t>(Channels)];
        }
        of_rows[r] = Taps::at(values, right);
      }
      to[c] = Taps::to_byte(Taps::at(of_rows, down));
    }
  }

  const_pixels in_;
  affine_matrix m_;
  const std::uint8_t* fill_;
  double x_ = 0.5;
  double y_ = -0.5;  // one row above the first row
};

}  // namespace detail

/// A rotation about the image center, combined with a translation, a scale and a shear.
struct affine_change {
  double angle = 0;    ///< clockwise rotation in degrees
  double right = 0;    ///< translation to the right in pixels
  double down = 0;     ///< downward translation in pixels
  double scale = 1;    ///< scale factor, above 0; 2 doubles all lengths
  double shear_x = 0;  ///< horizontal shear in degrees
  double shear_y = 0;  ///< vertical shear in degrees
};

/// Interpolation of transformed images.
enum class affine_filter {
  nearest,   ///< nearest neighbor
  bilinear,  ///< the 2 x 2 nearest pixels, linearly weighted
  bicubic,   ///< the 4 x 4 nearest pixels, weighted by Keys' cubic with a = -1
};

/// Sampling options for transformed images. As in Pillow, shrinking does not antialias.
struct affine_options {
  affine_filter filter = affine_filter::nearest;  ///< interpolation of input pixels
  /// Value of pixels outside the image, for each channel.
  std::array<std::uint8_t, 4> fill{};
};

namespace detail {

/// Returns the matrix of `change` for an image of `size`, which maps output pixels to input
/// positions. Throws std::invalid_argument unless all members are finite, scale > 0, and the shears
/// are between -90 and 90 degrees.
inline affine_matrix matrix_of(const affine_change& change, const image_size& size) {
  if (!(std::isfinite(change.angle) && std::isfinite(change.right) && std::isfinite(change.down) &&
        std::isfinite(change.scale) && change.scale > 0 && std::fabs(change.shear_x) < 90 &&
        std::fabs(change.shear_y) < 90)) {
    throw std::invalid_argument(
        "affine: expected finite numbers, scale > 0, -90 < shear < 90, found scale = " +
        to_text(change.scale) + ", shear = " + to_text(change.shear_x) + ", " +
        to_text(change.shear_y));
  }
  // Uses the formula from the torchvision documentation. Angles are in half turns.
  const auto sine = sine_of_half_turns;
  const auto cosine = [](double x) { return sine_of_half_turns(x + 0.5); };
  const double angle = change.angle / 180;
  const double shear_x = change.shear_x / 180;
  const double shear_y = change.shear_y / 180;
  const double cosine_y = cosine(shear_y);
  const double tangent_x = sine(shear_x) / cosine(shear_x);
  const double sheared_cosine = cosine(angle - shear_y);
  const double sheared_sine = sine(angle - shear_y);
  const double a = sheared_cosine / cosine_y;
  const double b = rounded(-sheared_cosine * tangent_x / cosine_y) - sine(angle);
  const double c = sheared_sine / cosine_y;
  const double d = rounded(-sheared_sine * tangent_x / cosine_y) + cosine(angle);
  const double xx = d / change.scale;
  const double xy = -b / change.scale;
  const double yx = -c / change.scale;
  const double yy = a / change.scale;
  // Rotates about the center, then translates.
  const double x = static_cast<double>(size.width) * 0.5;
  const double y = static_cast<double>(size.height) * 0.5;
  const double from_x = -x - change.right;
  const double from_y = -y - change.down;
  return {xx, xy, rounded(xx * from_x) + rounded(xy * from_y) + x,
          yx, yy, rounded(yx * from_x) + rounded(yy * from_y) + y};
}

/// Calls `use` with an iterator over `in`, transformed by `m`.
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

/// Transforms `in` and writes the result to `out`. The images must have the same size and channel
/// count, and must not overlap. The result is bit-identical to Pillow's
/// `transform(size, AFFINE, matrix, filter, fillcolor=fill)` with the same matrix. The matrix
/// equals torchvision's within 1e-12, because sines may differ in the last bit. An interpolated
/// value may therefore differ by 1 from torchvision. No channel is treated as alpha. Throws
/// std::invalid_argument unless the images have the same size and 1, 3 or 4 channels, all members
/// of `change` are finite, scale > 0, and the shears are between -90 and 90 degrees.
inline void affine(const const_pixels& in, const affine_change& change, const pixels& out,
                   const affine_options& options = {}) {
  if (in.size != out.size || in.channels != out.channels ||
      (in.channels != 1 && in.channels != 3 && in.channels != 4)) {
    throw std::invalid_argument(
        "affine: expected two images of the same size and 1, 3 or 4 channels, found " +
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

/// Parameter ranges of `random_affine`. A value of 0 disables a transformation, and a scale of 1
/// disables scaling.
struct random_affine_options {
  double degrees = 0;            ///< rotation by -degrees to degrees
  double translate_x = 0;        ///< maximum horizontal translation, as a fraction of the width
  double translate_y = 0;        ///< maximum vertical translation, as a fraction of the height
  double scale_low = 1;          ///< minimum scale
  double scale_high = 1;         ///< maximum scale
  double shear_x = 0;            ///< horizontal shear by -shear_x to shear_x degrees
  double shear_y = 0;            ///< vertical shear by -shear_y to shear_y degrees
  affine_options sampling = {};  ///< filter, and value of pixels outside the image
};

/// Applies a random rotation, translation, scale and shear, like torchvision's `RandomAffine`. The
/// defaults are nearest-neighbor sampling and zeros outside the image. Draws the angle, the
/// horizontal and vertical translation, the scale and the shears, in this order, and skips disabled
/// transformations. Translations are rounded to whole pixels.
///
///     auto more = photos | penstock::map<photo>([turn = penstock::random_affine{{.degrees = 9}}](
///                                auto in, auto out, auto& random) {
///       turn(penstock::as_pixels(penstock::get<"image">(in)),
///            penstock::as_pixels(penstock::get<"image">(out)), random);
///     });
///
/// Thread-safe. Random draws are the same on every machine.
class random_affine {
 public:
  /// Throws std::invalid_argument unless all options are finite and not negative, translations are
  /// at most 1, shears at most 89, degrees at most 360, and 1e-3 <= scale_low <= scale_high <= 1e3.
  explicit random_affine(const random_affine_options& options) : options_(options) {
    check("degrees", options.degrees, 0, 360);
    check("translate_x", options.translate_x, 0, 1);
    check("translate_y", options.translate_y, 0, 1);
    check("scale_low", options.scale_low, 1e-3, 1e3);
    check("scale_high", options.scale_high, options.scale_low, 1e3);
    check("shear_x", options.shear_x, 0, 89);
    check("shear_y", options.shear_y, 0, 89);
  }

  /// Draws the transformation of an image of `size`.
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

  /// Draws a transformation and writes the transformed `in` to `out`. Throws the same errors as
  /// `affine`.
  void operator()(const const_pixels& in, const pixels& out, sample_generator& random) const {
    affine(in, draw(in.size, random), out, options_.sampling);
  }

  /// Returns the sampling options.
  [[nodiscard]] const affine_options& sampling() const noexcept { return options_.sampling; }

 private:
  static void check(const char* name, double value, double min, double max) {
    if (!(value >= min && value <= max)) {
      throw std::invalid_argument("random_affine: expected " + detail::to_text(min) +
                                  " <= " + name + " <= " + detail::to_text(max) + ", found " +
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
