// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a `gaussian_process` expects of a function at a point: mean and standard deviation of the
/// function itself, without the noise of a measurement.
struct expected_value {
  double mean = 0;
  double deviation = 0;
};

/// Gaussian process regression of a function that is measured with noise, at points of the unit
/// cube. The kernel is Matérn 5/2, with one length for each dimension: how fast a process
/// takes its batches has kinks, where another stage becomes the slowest. Lengths and noise are
/// those of the highest posterior density among a few values each.
///
/// Source: C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006,
/// algorithm 2.1 and section 5.4.1. Costs O(n^3) for n points: for tens of them.
class gaussian_process {
 public:
  /// `points` holds `values.size()` points, at least one, of `dimensions` coordinates each.
  gaussian_process(std::vector<double> points, std::size_t dimensions, std::vector<double> values)
      : points_(std::move(points)),
        dimensions_(dimensions),
        values_(std::move(values)),
        lengths_(dimensions, lengths.at(2)) {
    standardise();
    choose();
  }

  /// What is expected at a point.
  [[nodiscard]] expected_value at(std::span<const double> point) const {
    const std::size_t count = values_.size();
    std::vector<double> near(count);
    for (std::size_t i = 0; i < count; ++i) near[i] = correlation(point, point_at(i));
    const double mean = std::inner_product(near.begin(), near.end(), weights_.begin(), 0.0);
    solve_lower(near);
    const double known = std::inner_product(near.begin(), near.end(), near.begin(), 0.0);
    return {mean_ + scale_ * mean, scale_ * std::sqrt(variance_ * (std::max)(0.0, 1 - known))};
  }

 private:
  static constexpr std::array lengths{0.2, 0.4, 0.8, 1.6, 3.2};
  static constexpr std::array nuggets{1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 0.5};

  [[nodiscard]] std::span<const double> point_at(std::size_t i) const noexcept {
    return std::span{points_}.subspan(i * dimensions_, dimensions_);
  }

  void standardise() {
    const auto count = static_cast<double>(values_.size());
    mean_ = std::accumulate(values_.begin(), values_.end(), 0.0) / count;
    double squares = 0;
    for (double& value : values_) {
      value -= mean_;
      squares += value * value;
    }
    scale_ = squares > 0 ? std::sqrt(squares / count) : 1;
    for (double& value : values_) value /= scale_;
  }

  [[nodiscard]] double correlation(std::span<const double> a,
                                   std::span<const double> b) const noexcept {
    double squares = 0;
    for (std::size_t d = 0; d < dimensions_; ++d) {
      const double apart = (a[d] - b[d]) / lengths_[d];
      squares += apart * apart;
    }
    const double distance = std::sqrt(5 * squares);
    return (1 + distance + distance * distance / 3) * std::exp(-distance);
  }

  /// Factors the correlations of all points and solves for the weights. The logarithm of the
  /// density of what was measured, given lengths and noise; the variance is the likeliest one.
  double fit() {
    const std::size_t count = values_.size();
    factor_.assign(count * count, 0.0);
    double logarithms = 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double sum = i == j ? 1 + nugget_ : correlation(point_at(i), point_at(j));
        for (std::size_t k = 0; k < j; ++k) sum -= factor_[i * count + k] * factor_[j * count + k];
        if (i != j) {
          factor_[i * count + j] = sum / factor_[j * count + j];
        } else {
          // The nugget keeps the pivot above zero, but for rounding.
          const double pivot = std::sqrt((std::max)(sum, 1e-12));
          factor_[i * count + i] = pivot;
          logarithms += std::log(pivot);
        }
      }
    }
    weights_ = values_;
    solve_lower(weights_);
    const double squares =
        std::inner_product(weights_.begin(), weights_.end(), weights_.begin(), 0.0);
    variance_ = (std::max)(squares / static_cast<double>(count), 1e-12);
    solve_upper(weights_);
    return -0.5 * static_cast<double>(count) * std::log(variance_) - logarithms + prior();
  }

  /// Few points can't tell a length from noise: without them, a length is about 0.8 and the noise a
  /// thirtieth of the variation.
  [[nodiscard]] double prior() const noexcept {
    const auto bell = [](double value, double centre, double width) {
      const double apart = std::log(value / centre) / width;
      return -0.5 * apart * apart;
    };
    double sum = bell(nugget_, 1e-3, 3);
    for (const double length : lengths_) sum += bell(length, 0.8, 1);
    return sum;
  }

  /// One parameter after the other takes the best of its values, twice.
  void choose() {
    double best = fit();
    const auto try_all = [&](double& parameter, std::span<const double> candidates) {
      double kept = parameter;
      for (const double candidate : candidates) {
        parameter = candidate;
        const double density = fit();
        if (density > best) {
          best = density;
          kept = candidate;
        }
      }
      parameter = kept;
    };
    for (int sweep = 0; sweep < 2; ++sweep) {
      for (double& length : lengths_) try_all(length, lengths);
      try_all(nugget_, nuggets);
    }
    fit();
  }

  void solve_lower(std::vector<double>& right) const noexcept {
    const std::size_t count = right.size();
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < i; ++k) right[i] -= factor_[i * count + k] * right[k];
      right[i] /= factor_[i * count + i];
    }
  }
  void solve_upper(std::vector<double>& right) const noexcept {
    const std::size_t count = right.size();
    for (std::size_t i = count; i-- > 0;) {
      for (std::size_t k = i + 1; k < count; ++k) right[i] -= factor_[k * count + i] * right[k];
      right[i] /= factor_[i * count + i];
    }
  }

  std::vector<double> points_;  // one after the other
  std::size_t dimensions_;
  std::vector<double> values_;  // with mean 0 and variance 1
  double mean_ = 0;             // of the values that were given
  double scale_ = 1;            // their standard deviation
  std::vector<double> lengths_;
  double nugget_ = nuggets.at(2);  // the noise's share of the variance
  double variance_ = 1;
  std::vector<double> factor_;   // lower triangle, by rows
  std::vector<double> weights_;  // of the points in a prediction's mean
};

/// How much less than `best` a value is expected to be on average, values above counted as 0. Less
/// is better. Source: D. R. Jones, M. Schonlau and W. J. Welch, "Efficient Global Optimization of
/// Expensive Black-Box Functions", 1998.
[[nodiscard]] inline double expected_improvement(const expected_value& at, double best) noexcept {
  const double gain = best - at.mean;
  if (!(at.deviation > 0)) return (std::max)(0.0, gain);
  const double z = gain / at.deviation;
  const double density = std::exp(-0.5 * z * z) * 0.39894228040143268;
  return gain * 0.5 * std::erfc(-z * 0.70710678118654752) + at.deviation * density;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
