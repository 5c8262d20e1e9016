// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <penstock/order/support/draw.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The layers of the ziggurat for the normal density, and the two functions that it needs.
///
/// exp and log are our own because those of the C libraries differ in their last bits, and every
/// product that is added to something goes through fma, which leaves the compiler nothing to
/// contract or not. 256 layers of equal area: layer 0 is the base with the tail beyond `tail`.
/// Source: Marsaglia, Tsang, "The ziggurat method for generating random variables", 2000; layer
/// and position from different bits after Doornik, "An improved ziggurat method", 2005.
struct ziggurat {
  static constexpr std::size_t layers = 256;
  static constexpr double tail = 3.654152885361008771645;
  static constexpr double area = 0.004928673233974655347;  // of a layer, under exp(-x^2 / 2)
  static constexpr double log_2 = 0.693147180559945309417;

  std::array<double, layers + 1> edge{};     // right edge of a layer; the last one is 0
  std::array<double, layers + 1> density{};  // exp(-edge^2 / 2)

  constexpr ziggurat() {
    edge[0] = area / exp_minus(tail * tail / 2);
    edge[1] = tail;
    for (std::size_t i = 1; i < layers; ++i) {
      density[i] = exp_minus(edge[i] * edge[i] / 2);
      if (i + 1 < layers) edge[i + 1] = root(-2 * log(area / edge[i] + density[i]));
    }
    density[layers] = 1;
  }

  static constexpr double multiply_add(double a, double b, double c) {
    if (std::is_constant_evaluated()) return a * b + c;
    return std::fma(a, b, c);
  }

  /// exp(-x) for x in [0, 700].
  static constexpr double exp_minus(double x) {
    const int halvings = static_cast<int>(multiply_add(x, 1 / log_2, 0.5));
    const double rest = multiply_add(halvings, log_2, -x);
    double sum = 1;
    for (int k = 14; k > 0; --k) sum = multiply_add(sum, rest / k, 1);
    return sum * std::bit_cast<double>(static_cast<std::uint64_t>(1023 - halvings) << 52);
  }

  /// log(x) for normal, positive x.
  static constexpr double log(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    int exponent = static_cast<int>(bits >> 52) - 1023;
    double mantissa = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (mantissa > 1.4142135623730951) {
      mantissa /= 2;
      ++exponent;
    }
    const double s = (mantissa - 1) / (mantissa + 1);
    double sum = 0;
    for (int k = 27; k > 0; k -= 2) sum = multiply_add(sum, s * s, 1.0 / k);
    return multiply_add(exponent, log_2, 2 * s * sum);
  }

  /// sqrt(x) by Newton's iteration, for the table only: std::sqrt is not constexpr in C++20.
  static constexpr double root(double x) {
    double guess = x < 1 ? 1 : x;
    for (int k = 0; k < 40; ++k) guess = (guess + x / guess) / 2;
    return guess;
  }
};

/// The table. A template, so that only a program that draws normal numbers has the compiler work it
/// out, which takes it a fifth of a second.
template <class = void>
inline constexpr ziggurat normal_layers{};

/// A standard normal number.
template <random_bits32 Generator, class Table = void>
double draw_normal(Generator& gen) {
  const ziggurat& table = normal_layers<Table>;  // dependent: worked out where this is called
  for (;;) {
    const std::uint64_t bits = draw64(gen);
    const std::size_t layer = bits & 0xff;
    const bool negative = (bits & 0x100) != 0;
    double x = static_cast<double>(bits >> 11) * 0x1p-53 * table.edge[layer];
    if (x >= table.edge[layer + 1]) {
      if (layer == 0) {
        double beyond = 0;
        double height = 0;
        do {
          beyond = -ziggurat::log(1 - draw_unit(gen)) / ziggurat::tail;
          height = -ziggurat::log(1 - draw_unit(gen));
        } while (2 * height < beyond * beyond);
        x = ziggurat::tail + beyond;
      } else {
        const double low = table.density[layer];
        const double rise = table.density[layer + 1] - low;
        if (ziggurat::multiply_add(draw_unit(gen), rise, low) >= ziggurat::exp_minus(x * x / 2)) {
          continue;
        }
      }
    }
    return negative ? -x : x;
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
