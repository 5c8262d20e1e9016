// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>

#include <penstock/core/version.hpp>

// Reproducible arithmetic: the same bits with every compiler, optimization flag and standard
// library, unless flags disable IEEE arithmetic. IEEE specifies +, -, *, / and the square root
// exactly. However, a compiler may fuse a multiplication and an addition, and other functions
// differ between libraries in the last bit.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns `product` as a double, and prevents the compiler from fusing it with an addition.
inline double rounded(double product) noexcept {
#if defined(__x86_64__)
  asm("" : "+x"(product));
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#else
  asm("" : "+m"(product));
#endif
  return product;
}

/// Returns the value at `x` of the polynomial with the coefficients `c`, highest power first.
template <std::size_t N>
double polynomial(const double (&c)[N], double x) noexcept {
  double sum = c[0];
  for (std::size_t i = 1; i < N; ++i) sum = rounded(sum * x) + c[i];
  return sum;
}

inline constexpr double pi = 3.14159265358979323846;

/// Returns sin(pi * x) for 0 <= x <= 1 with an error below 4e-16. Uses the Taylor series up to the
/// 21st power.
inline double sin_pi(double x) noexcept {
  constexpr double c[] = {1.0 / 51090942171709440000.0,
                          -1.0 / 121645100408832000.0,
                          1.0 / 355687428096000.0,
                          -1.0 / 1307674368000.0,
                          1.0 / 6227020800.0,
                          -1.0 / 39916800.0,
                          1.0 / 362880.0,
                          -1.0 / 5040.0,
                          1.0 / 120.0,
                          -1.0 / 6.0,
                          1.0};
  const double t = pi * (x < 0.5 ? x : 1 - x);
  return t * polynomial(c, rounded(t * t));
}

/// Returns e^x for |x| < 700, within two units in the last place. Reduces `x` by multiples of log 2
/// and uses the Taylor series up to the 14th power. log 2 is split so that the first product is
/// exact.
inline double exact_exp(double x) noexcept {
  constexpr double c[] = {1.0 / 87178291200.0,
                          1.0 / 6227020800.0,
                          1.0 / 479001600.0,
                          1.0 / 39916800.0,
                          1.0 / 3628800.0,
                          1.0 / 362880.0,
                          1.0 / 40320.0,
                          1.0 / 5040.0,
                          1.0 / 720.0,
                          1.0 / 120.0,
                          1.0 / 24.0,
                          1.0 / 6.0,
                          0.5,
                          1.0,
                          1.0};
  constexpr double log2_high = 0x1.62e42fee00000p-1;
  constexpr double log2_low = 0x1.a39ef35793c76p-33;
  const double n = std::floor(rounded(x * 1.44269504088896340736) + 0.5);
  const double r = (x - rounded(n * log2_high)) - rounded(n * log2_low);
  return std::ldexp(polynomial(c, r), static_cast<int>(n));
}

/// Returns the natural logarithm of a normal `x` > 0, within a few units in the last place. Removes
/// powers of two and uses the series of the inverse hyperbolic tangent up to the 21st power.
inline double exact_log(double x) noexcept {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // in [0.5, 1)
  // log f = 2 artanh((f - 1) / (f + 1)), for f in [sqrt(1/2), sqrt(2)): |s| < 0.172
  const bool low = fraction < 0.70710678118654752440;
  const double f = low ? 2 * fraction : fraction;
  const double n = low ? exponent - 1 : exponent;
  const double s = (f - 1) / (f + 1);
  constexpr double c[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                          1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
  const double series = rounded(2 * s * polynomial(c, rounded(s * s)));
  return rounded(n * 0x1.62e42fee00000p-1) + (series + rounded(n * 0x1.a39ef35793c76p-33));
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
