// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>

// What a pixel at a distance of `x` source pixels (or target pixels, when the picture shrinks)
// weighs, for each filter. `support` is where the weights end. The order of the sums and products
// is Pillow's, so that equal coefficients come of it.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The pixels whose middle is in the box, its right end included.
struct box_weight {
  static constexpr double support = 0.5;
  double operator()(double x) const noexcept { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }
};

/// A triangle.
struct bilinear_weight {
  static constexpr double support = 1.0;
  double operator()(double x) const noexcept {
    x = x < 0 ? -x : x;
    return x < 1 ? 1 - x : 0.0;
  }
};

/// Half a wave of a sine over its argument, below Hamming's window, whose factors are floats.
struct hamming_weight {
  static constexpr double support = 1.0;
  double operator()(double x) const noexcept {
    x = x < 0 ? -x : x;
    if (x == 0) return 1.0;
    if (x >= 1) return 0.0;
    const double cosine = x < 0.5 ? sin_pi(0.5 - x) : -sin_pi(x - 0.5);
    return sin_pi(x) / (x * pi) * (double{0.54f} + rounded(double{0.46f} * cosine));
  }
};

/// Keys' cubic with a = -1/2.
struct bicubic_weight {
  static constexpr double support = 2.0;
  double operator()(double x) const noexcept {
    x = x < 0 ? -x : x;
    if (x < 1) return rounded((rounded(1.5 * x) - 2.5) * x * x) + 1;
    if (x < 2) return (rounded((rounded((x - 5) * x) + 8) * x) - 4) * -0.5;
    return 0.0;
  }
};

/// sinc(x) sinc(x / 3) up to 3.
struct lanczos_weight {
  static constexpr double support = 3.0;
  double operator()(double x) const noexcept {
    if (!(x >= -3 && x < 3)) return 0.0;
    if (x == 0) return 1.0;
    x = x < 0 ? -x : x;
    // One series for both sines: sin 3a = sin a (3 - 4 sin^2 a).
    const double sine = sin_pi(x / 3);
    const double square = rounded(sine * sine);
    const double x_pi = x * pi;
    return square * (3 - rounded(4 * square)) * 3 / (x_pi * x_pi);
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
