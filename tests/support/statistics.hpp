// SPDX-License-Identifier: BSL-1.0
#pragma once

// Helpers for the statistical tests of random orders and random streams. Each statistic is
// converted to a p-value: the probability that a perfect source deviates at least as much. Checks
// are two-sided, because a result that is too even is as suspicious as one that is too uneven. A
// check fails if the p-value is below `false_alarm`. Seeds are fixed, so a check that passes once
// always passes. The limit keeps the chance of a false alarm when choosing seeds below one in a
// thousand for all checks together.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "support/sanitized.hpp"

inline constexpr double false_alarm = 1e-6;

// Divisor for the number of rounds in a build with sanitizers or without optimization.
inline constexpr int slowness = test::sanitized || !test::optimised ? 8 : 1;

/// The probabilities that a chi-square variable with `freedom` degrees of freedom is below or above
/// `value`. The values are the two regularized incomplete gamma functions; each is computed in the
/// form that is accurate for small results. Source: Abramowitz and Stegun, "Handbook of
/// Mathematical Functions", 6.5.29 and 6.5.31.
struct tails {
  double below;
  double above;
};

inline tails chi_square_tails(double value, double freedom) {
  const double a = freedom / 2;
  const double x = value / 2;
  if (x <= 0) return {0, 1};
  const double front = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1) {
    double term = 1 / a;
    double sum = term;
    for (double k = a + 1; term > sum * 1e-16; ++k) {
      term *= x / k;
      sum += term;
    }
    return {front * sum, 1 - front * sum};
  }
  double b = x + 1 - a;
  double c = 1e300;
  double d = 1 / b;
  double fraction = d;
  for (double k = 1; k < 1e6; ++k) {
    const double an = -k * (k - a);
    b += 2;
    d = 1 / (an * d + b);
    c = b + an / c;
    fraction *= d * c;
    if (std::abs(d * c - 1) < 1e-15) break;
  }
  return {1 - front * fraction, front * fraction};
}

/// Returns the p-value of a chi-square statistic. The test is two-sided unless there are few
/// degrees of freedom, because small tables often match their expected counts exactly.
inline double chance_of_chi_square(double value, double freedom) {
  const tails both = chi_square_tails(value, freedom);
  return freedom < 8 ? both.above : 2 * (std::min)(both.below, both.above);
}

/// Returns the p-value of a normal variable that is `deviations` standard deviations from its mean.
inline double chance_of_deviation(double deviations) {
  return std::erfc(std::abs(deviations) / std::sqrt(2.0));
}

/// Returns the p-value of observed counts. `expected` specifies the relative frequency of each
/// cell, in any unit. A cell with frequency 0 must have count 0.
inline double chance_of(const std::vector<double>& counts, const std::vector<double>& expected) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double whole = std::accumulate(expected.begin(), expected.end(), 0.0);
  double sum = 0;
  double freedom = -1;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0) {
      if (counts[i] != 0) return 0;
      continue;
    }
    const double mean = draws * expected[i] / whole;
    sum += (counts[i] - mean) * (counts[i] - mean) / mean;
    ++freedom;
  }
  return freedom < 1 ? 1 : chance_of_chi_square(sum, freedom);
}

/// Returns the p-value of observed counts if all cells are equally likely.
inline double chance_of(const std::vector<double>& counts) {
  return chance_of(counts, std::vector<double>(counts.size(), 1.0));
}

/// Returns the p-value of observed counts for a distribution with thin tails. Cells with an
/// expected count below `min` are merged with their neighbor towards the middle.
inline double chance_with_ends(std::vector<double> counts, std::vector<double> expected,
                               double min = 10) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double whole = std::accumulate(expected.begin(), expected.end(), 0.0);
  const auto join = [&](std::size_t from, std::size_t to) {
    expected[to] += expected[from];
    counts[to] += counts[from];
    expected[from] = counts[from] = 0;
  };
  const std::size_t size = expected.size();
  const auto thin = [&](std::size_t i) { return expected[i] * draws / whole < min; };
  for (std::size_t i = 0; i + 1 < size && thin(i); ++i) join(i, i + 1);
  for (std::size_t i = size; --i > 0 && thin(i);) join(i, i - 1);
  return chance_of(counts, expected);
}

/// Returns the p-value of a square table of counts whose rows and columns all have the same sum,
/// such as the (position, sample) table of permutations.
inline double chance_of_square(const std::vector<double>& counts, std::size_t side) {
  const double n = static_cast<double>(side);
  const double mean = std::accumulate(counts.begin(), counts.end(), 0.0) / (n * n);
  double sum = 0;
  for (const double count : counts) sum += (count - mean) * (count - mean) / mean;
  // The cells of such a table vary n / (n - 1) times as much as independent cells.
  return chance_of_chi_square(sum * (n - 1) / n, (n - 1) * (n - 1));
}
