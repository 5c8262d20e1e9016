// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <penstock/core/version.hpp>
#include <penstock/image/detail/exact_math.hpp>
#include <penstock/image/pixels.hpp>

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

/// Steps along rows and columns of the result.
template <std::size_t Channels, class Steps>
void warp_by(const const_pixels& in, const affine_matrix& m, const pixels& out) {
  using number = typename Steps::number;
  number row_x = Steps::from(m.x0 + m.xx * 0.5 + m.xy * 0.5);
  number row_y = Steps::from(m.y0 + m.yx * 0.5 + m.yy * 0.5);
  const number xx = Steps::from(m.xx);
  const number xy = Steps::from(m.xy);
  const number yx = Steps::from(m.yx);
  const number yy = Steps::from(m.yy);
  for (std::size_t y = 0; y < out.size.height; ++y, row_x += xy, row_y += yy) {
    std::uint8_t* to = out.row(y);
    number at_x = row_x;
    number at_y = row_y;
    for (std::size_t x = 0; x < out.size.width; ++x, to += Channels, at_x += xx, at_y += yx) {
      if (Steps::lies_below(at_x, in.size.width) && Steps::lies_below(at_y, in.size.height)) {
        std::memcpy(to, in.row(Steps::whole(at_y)) + Steps::whole(at_x) * Channels, Channels);
      } else {
        std::memset(to, 0, Channels);
      }
    }
  }
}

/// Writes to `out` the nearest pixels of `in`, which is as large; zeros where there are none.
template <std::size_t Channels>
void warp(const const_pixels& in, const affine_matrix& m, const pixels& out) {
  const bool turns = m.xy != 0 || m.yx != 0;
  if (turns && fits_fixed(m, out.size)) return warp_by<Channels, fixed_steps>(in, m, out);
  warp_by<Channels, double_steps>(in, m, out);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
