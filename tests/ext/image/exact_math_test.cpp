// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/detail/exact_math.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

#include "support/catch.hpp"

namespace detail = penstock::detail;

TEST_CASE("a sine, e to a power and a logarithm are right to the last places", "[image]") {
  double sine = 0;
  double power = 0;
  double logarithm = 0;
  for (int i = 0; i <= 20'000; ++i) {
    const double x = i / 20'000.0;
    sine = std::fmax(sine,
                     std::fabs(detail::sin_pi(x) - std::sin(detail::pi * (x < 0.5 ? x : 1 - x))));
    const double y = 40 * x - 20;
    power = std::fmax(power, std::fabs(detail::exact_exp(y) / std::exp(y) - 1));
    const double z = std::exp(y) * (1 + x);
    if (z < 0.99 || z > 1.01) {
      logarithm = std::fmax(logarithm, std::fabs(detail::exact_log(z) / std::log(z) - 1));
    }
  }
  CHECK(sine < 4e-16);
  CHECK(power < 5e-16);
  CHECK(logarithm < 5e-16);
  CHECK(detail::exact_log(1) == 0);
  CHECK(detail::exact_exp(0) == 1);
}

TEST_CASE("a sine, e to a power and a logarithm have the same bits everywhere",
          "[image][promise:exact-15]") {
  std::uint64_t sum = 0;
  const auto add = [&sum](double value) {
    sum = std::rotl(sum, 7) * 0x9e3779b97f4a7c15ull + std::bit_cast<std::uint64_t>(value);
  };
  for (int i = 1; i < 2'000; ++i) {
    add(detail::sin_pi(i / 2'000.0));
    add(detail::exact_exp(i / 100.0 - 10));
    add(detail::exact_log(i / 500.0));
  }
  CHECK(sum == 0xbad4df02a4b75b67ull);
}
