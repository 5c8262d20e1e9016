// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/search/option_search.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::expected_improvement;
using penstock::detail::expected_value;
using penstock::detail::gaussian_process;

namespace {

double valley(double x, double y) { return 3 + (x - 0.3) * (x - 0.3) + 2 * (y - 0.6) * (y - 0.6); }

/// Returns measurements of the function `valley` on a grid. Each has a normally distributed error
/// with standard deviation `noise`.
gaussian_process measured(std::size_t side, double noise) {
  std::mt19937 generator{7};
  std::normal_distribution<double> normal;
  std::vector<std::vector<double>> points;
  std::vector<double> values;
  for (std::size_t i = 0; i < side * side; ++i) {
    const double x = static_cast<double>(i % side) / static_cast<double>(side - 1);
    const double y = static_cast<double>(i / side) / static_cast<double>(side - 1);
    points.push_back({x, y});
    values.push_back(valley(x, y) + noise * normal(generator));
  }
  return {std::move(points), std::move(values)};
}

}  // namespace

TEST_CASE("a process without noise passes through the measurements", "[tune]") {
  const auto process = measured(5, 0);
  for (const double x : {0.0, 0.25, 0.5, 1.0}) {
    const auto there = process.at(std::array{x, 0.5});
    CHECK(std::abs(there.mean - valley(x, 0.5)) < 1e-3);
    CHECK(there.deviation < 1e-2);
  }
}

TEST_CASE("between measurements a process follows a smooth function", "[tune]") {
  const auto process = measured(5, 0);
  for (const double x : {0.1, 0.4, 0.9}) {
    CHECK(std::abs(process.at(std::array{x, 0.6}).mean - valley(x, 0.6)) < 0.01);
  }
}

TEST_CASE("a process distinguishes noise from the function", "[tune]") {
  const auto process = measured(6, 0.1);
  double apart = 0;
  for (const double x : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}) {
    apart += std::abs(process.at(std::array{x, 0.6}).mean - valley(x, 0.6)) / 6;
  }
  CHECK(apart < 0.07);  // the mean of many measurements is more accurate than a single measurement
}

TEST_CASE("a point that was never measured is uncertain", "[tune]") {
  const gaussian_process process{{{0.0}, {0.1}, {0.2}}, {1.0, 2.0, 1.5}};
  const double near = process.at(std::array{0.15}).deviation;
  const double far = process.at(std::array{1.0}).deviation;
  CHECK(far > 2 * near);
  CHECK(far > 0.1);
}

TEST_CASE("a process accepts one measurement and equal measurements", "[tune]") {
  const gaussian_process one{std::vector(1, std::vector{0.5}), {4.0}};
  CHECK(one.at(std::array{0.5}).mean == 4.0);
  const gaussian_process equal{{{0.0}, {0.0}, {1.0}}, {2.0, 2.0, 2.0}};
  CHECK(equal.at(std::array{0.5}).mean == 2.0);
  CHECK(std::isfinite(equal.at(std::array{0.5}).deviation));
}

TEST_CASE("the expected improvement equals the formula", "[tune]") {
  // If the mean equals the best value, the result is the deviation times the normal density at 0.
  CHECK(std::abs(expected_improvement({1.0, 2.0}, 1.0) - 2.0 * 0.3989422804) < 1e-9);
  // A point without uncertainty gains the difference if it is better, and nothing otherwise.
  CHECK(expected_improvement({0.5, 0.0}, 2.0) == 1.5);
  CHECK(expected_improvement({3.0, 0.0}, 2.0) == 0.0);
  // A mean one deviation above the best value gives phi(1) - (1 - Phi(1)).
  CHECK(std::abs(expected_improvement({1.0, 1.0}, 0.0) - 0.0833154706) < 1e-9);
}
