// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where a pixel of the result comes from: x of the source is xx * x + xy * y + x0 of the result.
struct affine_matrix {
  double xx;
  double xy;
  double x0;
  double yx;
  double yy;
  double y0;
};

/// sin(pi * x).
inline double sine_of_half_turns(double x) noexcept {
  const double turns = x - 2 * std::floor(x / 2);  // in [0, 2]
  return turns <= 1 ? sin_pi(turns) : -sin_pi(turns - 1);
}

/// The inverse of a rotation with shear and scale, angles in half turns. The products and sums are
/// those of torchvision's documentation of its matrix.
class affine_turn {
 public:
  affine_turn(double angle, double shear_x, double shear_y, double scale) noexcept {
    const double cosine_y = cosine(shear_y);
    const double tangent_x = sine_of_half_turns(shear_x) / cosine(shear_x);
    const double sheared_cosine = cosine(angle - shear_y);
    const double sheared_sine = sine_of_half_turns(angle - shear_y);
    const double a = sheared_cosine / cosine_y;
    const double b = rounded(-sheared_cosine * tangent_x / cosine_y) - sine_of_half_turns(angle);
    const double c = sheared_sine / cosine_y;
    const double d = rounded(-sheared_sine * tangent_x / cosine_y) + cosine(angle);
    xx_ = d / scale;
    xy_ = -b / scale;
    yx_ = -c / scale;
    yy_ = a / scale;
  }

  /// The matrix that turns about (x, y) and shifts by (right, down) then.
  [[nodiscard]] affine_matrix about(double x, double y, double right, double down) const noexcept {
    const double from_x = -x - right;
    const double from_y = -y - down;
    return {xx_, xy_, rounded(xx_ * from_x) + rounded(xy_ * from_y) + x,
            yx_, yy_, rounded(yx_ * from_x) + rounded(yy_ * from_y) + y};
  }

 private:
  static double cosine(double x) noexcept { return sine_of_half_turns(x + 0.5); }

  double xx_;
  double xy_;
  double yx_;
  double yy_;
};

/// Numbers with 16 bits after the point: what Pillow steps with where 32 bits are enough.
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

/// Doubles: what it steps with where they are not, or where nothing turns.
struct double_steps {
  using number = double;
  static number from(double value) noexcept { return value; }
  static bool lies_below(number at, std::size_t size) noexcept {
    return at >= 0 && at < static_cast<double>(size);
  }
  static std::size_t whole(number at) noexcept { return static_cast<std::size_t>(at); }
};

/// Whether 16 bits before the point hold the sources of all corners.
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

/// Walks over a turned picture, row by row, and takes the pixel in which the middle of each one
/// lies. The sums are Pillow's, so that a part has the bits of the whole.
template <std::size_t Channels, class Steps>
class nearest_walk {
 public:
  static constexpr std::size_t channels = Channels;

  /// Before the first row of `in`, turned by `m`; `fill` is a pixel of what lies outside.
  nearest_walk(const const_pixels& in, const affine_matrix& m, const std::uint8_t* fill) noexcept
      : in_(in),
        fill_(fill),
        row_x_(Steps::from(m.x0 + m.xx * 0.5 + m.xy * 0.5)),
        row_y_(Steps::from(m.y0 + m.yx * 0.5 + m.yy * 0.5)),
        xx_(Steps::from(m.xx)),
        xy_(Steps::from(m.xy)),
        yx_(Steps::from(m.yx)),
        yy_(Steps::from(m.yy)) {}

  /// To the first pixel of the next row.
  void begin_row() noexcept {
    at_x_ = row_x_;
    at_y_ = row_y_;
    row_x_ += xy_;
    row_y_ += yy_;
  }
  /// Leaves out `count` pixels of the row. One after the other: a product would be rounded
  /// otherwise.
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

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
