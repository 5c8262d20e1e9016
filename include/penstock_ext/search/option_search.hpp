// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/load/options.hpp>
#include <penstock/order/random.hpp>
#include <penstock/transfer/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The batch size, and options that affect the speed of a loop but not its results. Options that
/// were not searched are empty. See `option_search`.
struct tuned_options {
  /// Value for `loader_options::workers`.
  std::optional<std::size_t> workers = {};
  /// Value for `loader_options::tuning.chunk`.
  std::optional<std::size_t> chunk = {};
  /// Value for `loader_options::prefetch`.
  std::optional<std::size_t> prefetch = {};
  /// Value for `transfer_options::depth`.
  std::optional<std::size_t> depth = {};
  /// Value for `loader_options::pinned`, 0 or 1.
  std::optional<std::size_t> pinned = {};
  /// Value for `loader_options::batch_size`.
  std::optional<std::size_t> batch_size = {};

  /// Copies the non-empty options to `options`.
  void apply_to(loader_options& options) const noexcept {
    if (workers) options.workers = *workers;
    options.tuning.chunk = chunk.value_or(options.tuning.chunk);
    if (prefetch) options.prefetch = *prefetch;
    options.pinned = pinned.value_or(options.pinned ? 1U : 0U) != 0;
    options.batch_size = batch_size.value_or(options.batch_size);
  }
  /// Copies `depth` to `options` if it is not empty.
  void apply_to(transfer_options& options) const noexcept {
    if (depth) options.depth = *depth;
  }

  friend bool operator==(const tuned_options&, const tuned_options&) = default;
};

namespace detail {

/// A separate alias, because g++ would warn about the declaration that nvcc generates for the type
/// itself.
using tuned_place = std::optional<std::size_t> tuned_options::*;

struct tuned_member {
  std::string_view name;
  tuned_place place;
};

/// The options and their names, in output order.
inline constexpr std::array<tuned_member, 6> tuned_members{
    {{"batch_size", &tuned_options::batch_size},
     {"workers", &tuned_options::workers},
     {"prefetch", &tuned_options::prefetch},
     {"pinned", &tuned_options::pinned},
     {"chunk", &tuned_options::chunk},
     {"depth", &tuned_options::depth}}};

}  // namespace detail

/// Candidate values of each loop option for an `option_search`. Options without candidates remain
/// unchanged. The value 0 is allowed if it has a special meaning (`workers`, `chunk`, `prefetch`).
/// The space may have at most 65,536 combinations.
struct search_space {
  /// Candidate values of `loader_options::workers`.
  std::vector<std::size_t> workers = {};
  /// Candidate values of `loader_options::tuning.chunk`.
  std::vector<std::size_t> chunk = {};
  /// Candidate values of `loader_options::prefetch`.
  std::vector<std::size_t> prefetch = {};
  /// Candidate values of `transfer_options::depth`, each at least 1.
  std::vector<std::size_t> depth = {};
  /// Candidate values of `loader_options::pinned`, 0 and 1.
  std::vector<std::size_t> pinned = {};
  /// Candidate values of `loader_options::batch_size`, each at least 1. Because the batch size
  /// affects what the model learns, compare candidates by the cost per sample, or by the cost of
  /// training to a given goal.
  std::vector<std::size_t> batch_size = {};
};

namespace detail {

/// The prediction of a `gaussian_process` at a point: mean and standard deviation of the function,
/// excluding measurement noise.
struct expected_value {
  double mean = 0;
  double deviation = 0;
};

/// Gaussian process regression of a noisy function in the unit cube. The kernel is Matérn 5/2 with
/// a length scale for each dimension. Matérn 5/2 permits kinks, such as those of throughput when
/// the slowest stage changes. Length scales and noise are selected from a few values each by
/// maximum posterior density.
///
/// Source: C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006,
/// algorithm 2.1 and section 5.4.1. Needs O(n^3) time for n points, and is intended for tens of
/// points.
class gaussian_process {
 public:
  /// Fits the process to `values` at the coordinates `points`. At least one point is required.
  gaussian_process(std::vector<std::vector<double>> points, std::vector<double> values)
      : points_(std::move(points)),
        values_(std::move(values)),
        lengths_(points_.front().size(), lengths.at(2)) {
    standardise();
    choose();
  }

  /// Returns the prediction at `point`.
  [[nodiscard]] expected_value at(std::span<const double> point) const {
    const std::size_t count = values_.size();
    std::vector<double> near(count);
    for (std::size_t i = 0; i < count; ++i) near[i] = correlation(point, points_[i]);
    const double mean = std::inner_product(near.begin(), near.end(), weights_.begin(), 0.0);
    solve_lower(near);
    const double known = std::inner_product(near.begin(), near.end(), near.begin(), 0.0);
    return {mean_ + scale_ * mean, scale_ * std::sqrt(variance_ * (std::max)(0.0, 1 - known))};
  }

 private:
  static constexpr std::array lengths{0.2, 0.4, 0.8, 1.6, 3.2};
  static constexpr std::array nuggets{1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 0.5};

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
    for (std::size_t d = 0; d < lengths_.size(); ++d) {
      const double apart = (a[d] - b[d]) / lengths_[d];
      squares += apart * apart;
    }
    const double distance = std::sqrt(5 * squares);
    return (1 + distance + distance * distance / 3) * std::exp(-distance);
  }

  /// Factors the correlation matrix and solves for the weights. Returns the log posterior density
  /// of the measurements for the current length scales and noise. Uses the maximum-likelihood
  /// variance.
  double fit() {
    const std::size_t count = values_.size();
    factor_.assign(count * count, 0.0);
    double logarithms = 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double sum = i == j ? 1 + nugget_ : correlation(points_[i], points_[j]);
        for (std::size_t k = 0; k < j; ++k) sum -= factor_[i * count + k] * factor_[j * count + k];
        if (i != j) {
          factor_[i * count + j] = sum / factor_[j * count + j];
        } else {
          // The nugget keeps the pivot positive unless rounding errors are large.
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

  /// Returns the log prior density. A prior is necessary because a few points cannot distinguish a
  /// length scale from noise. The prior expects a length scale of about 0.8, and noise of 1/30 of
  /// the variation.
  [[nodiscard]] double prior() const noexcept {
    const auto bell = [](double value, double centre, double width) {
      const double apart = std::log(value / centre) / width;
      return -0.5 * apart * apart;
    };
    double sum = bell(nugget_, 1e-3, 3);
    for (const double length : lengths_) sum += bell(length, 0.8, 1);
    return sum;
  }

  /// Sets each parameter in turn to its best value, in two sweeps.
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

  std::vector<std::vector<double>> points_;
  std::vector<double> values_;  // scaled to mean 0 and variance 1
  double mean_ = 0;             // mean of the original values
  double scale_ = 1;            // standard deviation of the original values
  std::vector<double> lengths_;
  double nugget_ = nuggets.at(2);  // fraction of the variance that is noise
  double variance_ = 1;
  std::vector<double> factor_;   // lower triangle, row by row
  std::vector<double> weights_;  // weight of each point in the predicted mean
};

/// Returns the expected improvement on `best`, the expectation of max(best - value, 0). Lower
/// values are better. Source: D. R. Jones, M. Schonlau and W. J. Welch, "Efficient Global
/// Optimization of Expensive Black-Box Functions", 1998.
[[nodiscard]] inline double expected_improvement(const expected_value& at, double best) noexcept {
  const double gain = best - at.mean;
  if (!(at.deviation > 0)) return (std::max)(0.0, gain);
  const double z = gain / at.deviation;
  const double density = std::exp(-0.5 * z * z) * 0.39894228040143268;
  return gain * 0.5 * std::erfc(-z * 0.70710678118654752) + at.deviation * density;
}

/// The numbered combinations of a `search_space`, with coordinates in the unit cube. The coordinate
/// of a value is its logarithm, scaled to the range of the values. The value 0 selects a different
/// mode. Therefore its coordinate is in the middle, and an additional coordinate is 1 for the value
/// 0 and otherwise 0.
class search_grid {
 public:
  /// Numbers the combinations of `space`. Throws `option_error` if a value is out of range, or if
  /// there are too many combinations.
  explicit search_grid(const search_space& space) {
    add("workers", &tuned_options::workers, space.workers, 0, 4096);
    add("chunk", &tuned_options::chunk, space.chunk, 0, no_limit);
    add("prefetch", &tuned_options::prefetch, space.prefetch, 0, max_slots - 1);
    add("depth", &tuned_options::depth, space.depth, 1, 1024);
    add("pinned", &tuned_options::pinned, space.pinned, 0, 1);
    add("batch_size", &tuned_options::batch_size, space.batch_size, 1, no_limit);
    if (axes_.empty()) throw option_error("search_space", "no option has a value");
  }

  /// Returns the number of combinations.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Returns the number of options that have more than one value.
  [[nodiscard]] std::size_t varied() const noexcept {
    return static_cast<std::size_t>(std::count_if(
        axes_.begin(), axes_.end(), [](const axis& one) { return one.values.size() > 1; }));
  }
  /// Returns the number of candidate values of a searched option.
  [[nodiscard]] std::size_t values_of(std::size_t option) const noexcept {
    return axes_[option].values.size();
  }

  /// Returns the combination in which each option has its candidate value with index
  /// `number_of(option)`.
  template <class NumberOf>
  [[nodiscard]] std::size_t where(NumberOf&& number_of) const {
    std::size_t point = 0;
    for (std::size_t option = axes_.size(); option-- > 0;) {
      point = point * axes_[option].values.size() + number_of(option);
    }
    return point;
  }

  /// Returns the options of combination `point`.
  [[nodiscard]] tuned_options at(std::size_t point) const {
    tuned_options options;
    for (const axis& one : axes_) {
      options.*one.place = one.values[point % one.values.size()];
      point /= one.values.size();
    }
    return options;
  }

  /// Returns the combination with the options `options`, or nothing if the space does not contain
  /// it.
  [[nodiscard]] std::optional<std::size_t> find(const tuned_options& options) const {
    tuned_options rest = options;
    bool is_there = true;
    const std::size_t point = where([&](std::size_t option) {
      const axis& one = axes_[option];
      const auto wanted = std::exchange(rest.*one.place, std::nullopt);
      const auto found = std::find(one.values.begin(), one.values.end(), wanted);
      is_there = is_there && found != one.values.end();
      return is_there ? static_cast<std::size_t>(found - one.values.begin()) : 0;
    });
    if (!is_there || rest != tuned_options{}) return std::nullopt;
    return point;
  }

  /// Returns the coordinates of combination `point`.
  [[nodiscard]] std::vector<double> coordinates(std::size_t point) const {
    std::vector<double> all;
    for (const axis& one : axes_) {
      const std::size_t value = one.values[point % one.values.size()];
      point /= one.values.size();
      const bool has_zero = one.values.front() == 0 && one.values.size() > 1;
      const auto lowest = static_cast<double>(one.values[has_zero ? 1 : 0]);
      const auto highest = static_cast<double>(one.values.back());
      const double range = lowest > 0 ? std::log(highest / lowest) : 0;
      const double at = value == 0 ? 0.5 * range : std::log(static_cast<double>(value) / lowest);
      all.push_back(range > 0 ? at / range : 0.5);
      if (has_zero) all.push_back(value == 0 ? 1.0 : 0.0);
    }
    return all;
  }

 private:
  static constexpr std::size_t no_limit = ~std::size_t{0};
  static constexpr std::size_t max = std::size_t{1} << 16;

  struct axis {
    tuned_place place;
    std::vector<std::size_t> values;  // sorted without duplicates
  };

  void add(const char* name, tuned_place place, std::vector<std::size_t> values, std::size_t min,
           std::size_t highest) {
    if (values.empty()) return;
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (const std::size_t value : {values.front(), values.back()}) {
      if (value >= min && value <= highest) continue;
      throw_option_error(name, {value, " is not in ", min, "..", highest});
    }
    if (values.size() > max / size_) {
      throw_option_error("search_space", {"more than ", max, " combinations"});
    }
    size_ *= values.size();
    axes_.push_back({place, std::move(values)});
  }

  std::vector<axis> axes_;
  std::size_t size_ = 1;
};

}  // namespace detail

/// Options of an `option_search`. Invalid values cause `option_error` at construction.
struct search_options {
  /// Seed that determines the first trials, and together with the costs all other trials.
  std::uint64_t seed = 0;
  /// Maximum number of trials, at least 1.
  std::size_t trials = 40;
  /// Maximum duration of the search since construction, in seconds. After that no trial is
  /// proposed. 0 means no limit.
  std::chrono::duration<double> budget{0};
  /// The search ends when the next trial is expected to lower the cost by less than this fraction.
  double min_gain = 0.002;
};

/// Options that were tried, and the cost of a loop with these options.
struct trial {
  tuned_options options;  ///< the options that were tried
  double cost = 0;        ///< positive; lower is better

  friend bool operator==(const trial&, const trial&) = default;
};

/// Finds the fastest loop options in few trials, using Bayesian optimization. Models the logarithm
/// of the cost as a Gaussian process, and maximizes the expected improvement. The cost may be
/// noisy, and a trial is proposed again if that is worthwhile.
///
///     ps::option_search search{{.workers = {1, 2, 4, 8}, .depth = {2, 3, 4}}, {.seed = 1}};
///     while (const auto options = search.next()) search.record(*options, seconds_with(*options));
///     std::cout << ps::to_text(search.best());  // penstock_ext/search/tuned_text.hpp
///
/// Proposals depend only on the space, the seed and the sequence of trials. To continue an earlier
/// search, pass its trials to `record`. Not thread-safe.
class option_search {
 public:
  /// Creates a search over `space`. Throws `option_error` if the space or an option is invalid.
  explicit option_search(const search_space& space, const search_options& options = {})
      : grid_(space), options_(options), excluded_(grid_.size(), false) {
    if (options.trials == 0) throw option_error("trials", "must be at least 1, but is 0");
    if (!(options.budget.count() >= 0)) throw option_error("budget", "must not be negative");
    if (!(options.min_gain >= 0)) throw option_error("min_gain", "must not be negative");
  }

  /// Returns the options to try next, or `std::nullopt` when the search is over. The search ends
  /// when the trials or the budget are used up, no combination is left, or no trial is expected to
  /// gain enough.
  [[nodiscard]] std::optional<tuned_options> next() const {
    if (trials_.size() >= options_.trials || is_late()) return std::nullopt;
    auto point = trials_.size() < first_trials() ? spread() : std::nullopt;
    if (!point && !trials_.empty()) point = best_expected();
    if (!point) return std::nullopt;
    return grid_.at(*point);
  }

  /// Records that a loop with `options` had the given cost, in seconds or any other unit. Throws
  /// `option_error` if the space does not contain the options, or if the cost is not finite and
  /// positive.
  void record(const tuned_options& options, double cost) {
    const std::size_t point = require(options);
    if (!(cost > 0) || !std::isfinite(cost)) {
      throw option_error("cost", "must be a finite number above 0");
    }
    points_.push_back(point);
    trials_.push_back({options, cost});
  }

  /// Excludes `options` from further proposals, for example because their slots would exceed the
  /// memory budget.
  void exclude(const tuned_options& options) { excluded_[require(options)] = true; }

  /// Returns all recorded trials in order.
  [[nodiscard]] const std::vector<trial>& trials() const noexcept { return trials_; }

  /// Returns the options of the trial with the lowest expected cost, excluding noise. Throws
  /// `std::logic_error` before the first trial.
  [[nodiscard]] const tuned_options& best() const {
    if (trials_.empty()) throw std::logic_error("option_search: no trial has finished");
    return trials_[best_tried(fitted())].options;
  }

 private:
  [[nodiscard]] bool is_late() const {
    return options_.budget.count() > 0 &&
           std::chrono::steady_clock::now() - began_ >= options_.budget;
  }

  [[nodiscard]] std::size_t require(const tuned_options& options) const {
    const auto point = grid_.find(options);
    if (!point) throw option_error("options", "are not in the search space");
    return *point;
  }

  /// Returns the number of initial trials, which are spread over the space without the Gaussian
  /// process.
  [[nodiscard]] std::size_t first_trials() const noexcept {
    return (std::min)(options_.trials, grid_.varied() + 2);
  }

  [[nodiscard]] bool is_free(std::size_t point) const noexcept {
    return !excluded_[point] && std::find(points_.begin(), points_.end(), point) == points_.end();
  }

  /// Returns an untried combination whose values occurred in few trials. As in a Latin hypercube,
  /// each option uses its values in random order, one value for each trial.
  [[nodiscard]] std::optional<std::size_t> spread() const {
    const std::uint64_t number = trials_.size();
    const std::size_t wanted = grid_.where([&](std::size_t option) -> std::size_t {
      const std::size_t count = grid_.values_of(option);
      sample_generator generator{{.seed = options_.seed, .epoch = number / count}, option};
      std::vector<std::size_t> order(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto with = uniform(generator, std::size_t{0}, i);
        order[i] = order[with];
        order[with] = i;
      }
      return order[number % count];
    });
    for (std::size_t i = 0; i < grid_.size(); ++i) {
      const std::size_t point = (wanted + i) % grid_.size();
      if (is_free(point)) return point;
    }
    return std::nullopt;
  }

  [[nodiscard]] detail::gaussian_process fitted() const {
    std::vector<std::vector<double>> points;
    std::vector<double> values;
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      points.push_back(grid_.coordinates(points_[i]));
      values.push_back(std::log(trials_[i].cost));
    }
    return {std::move(points), std::move(values)};
  }

  /// Returns the index of the trial with the lowest cost according to `process`.
  [[nodiscard]] std::size_t best_tried(const detail::gaussian_process& process) const {
    const auto best = std::ranges::min_element(
        points_, {}, [&](std::size_t point) { return process.at(grid_.coordinates(point)).mean; });
    return static_cast<std::size_t>(best - points_.begin());
  }

  /// Returns the combination with the highest expected improvement on the best trial.
  [[nodiscard]] std::optional<std::size_t> best_expected() const {
    const auto process = fitted();
    const double min = process.at(grid_.coordinates(points_[best_tried(process)])).mean;
    std::optional<std::size_t> best;
    double max = std::log1p(options_.min_gain);
    for (std::size_t point = 0; point < grid_.size(); ++point) {
      if (excluded_[point]) continue;
      const double gain = detail::expected_improvement(process.at(grid_.coordinates(point)), min);
      if (gain > max) {
        max = gain;
        best = point;
      }
    }
    return best;
  }

  detail::search_grid grid_;
  search_options options_;
  std::vector<bool> excluded_;  // indexed by combination
  std::vector<trial> trials_;
  std::vector<std::size_t> points_;  // combinations of the trials
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
