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

/// Options that change how fast a loop is and not what it computes, and the batch size: values for
/// those that were looked for, nothing for the others. See `option_search`.
struct tuned_options {
  /// `loader_options::workers`.
  std::optional<std::size_t> workers = {};
  /// `loader_options::tuning.chunk`.
  std::optional<std::size_t> chunk = {};
  /// `loader_options::prefetch`.
  std::optional<std::size_t> prefetch = {};
  /// `transfer_options::depth`.
  std::optional<std::size_t> depth = {};
  /// `loader_options::pinned`, 0 or 1.
  std::optional<std::size_t> pinned = {};
  /// `loader_options::batch_size`.
  std::optional<std::size_t> batch_size = {};

  /// Sets those options that have a value here.
  void apply_to(loader_options& options) const noexcept {
    options.workers = workers.value_or(options.workers);
    options.tuning.chunk = chunk.value_or(options.tuning.chunk);
    options.prefetch = prefetch.value_or(options.prefetch);
    options.pinned = pinned.value_or(options.pinned ? 1U : 0U) != 0;
    options.batch_size = batch_size.value_or(options.batch_size);
  }
  /// Sets `depth`, if it has a value here.
  void apply_to(transfer_options& options) const noexcept {
    options.depth = depth.value_or(options.depth);
  }

  friend bool operator==(const tuned_options&, const tuned_options&) = default;
};

namespace detail {

/// By a name of its own: nvcc writes a declaration of it that g++ warns of.
using tuned_place = std::optional<std::size_t> tuned_options::*;

struct tuned_member {
  std::string_view name;
  tuned_place place;
};

/// The options by name, in the order of their texts.
inline constexpr std::array<tuned_member, 6> tuned_members{
    {{"batch_size", &tuned_options::batch_size},
     {"workers", &tuned_options::workers},
     {"prefetch", &tuned_options::prefetch},
     {"pinned", &tuned_options::pinned},
     {"chunk", &tuned_options::chunk},
     {"depth", &tuned_options::depth}}};

}  // namespace detail

/// The values that an `option_search` chooses from, for each option of a loop; without values an
/// option stays as it is. Where 0 has a special meaning (`workers`, `chunk`, `prefetch`) it may be
/// among them. At most 65,536 combinations.
struct search_space {
  /// `loader_options::workers`.
  std::vector<std::size_t> workers = {};
  /// `loader_options::tuning.chunk`.
  std::vector<std::size_t> chunk = {};
  /// `loader_options::prefetch`.
  std::vector<std::size_t> prefetch = {};
  /// `transfer_options::depth`, each at least 1.
  std::vector<std::size_t> depth = {};
  /// `loader_options::pinned`, 0 and 1.
  std::vector<std::size_t> pinned = {};
  /// `loader_options::batch_size`, each at least 1. It changes what is computed: the cost then has
  /// to be that of a sample, or of what training needs to get somewhere.
  std::vector<std::size_t> batch_size = {};
};

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
  /// Of `values.size()` points, at least one, by their coordinates.
  gaussian_process(std::vector<std::vector<double>> points, std::vector<double> values)
      : points_(std::move(points)),
        values_(std::move(values)),
        lengths_(points_.front().size(), lengths.at(2)) {
    standardise();
    choose();
  }

  /// What is expected at a point.
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

  /// Factors the correlations of all points and solves for the weights. The logarithm of the
  /// density of what was measured, given lengths and noise; the variance is the likeliest one.
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

  std::vector<std::vector<double>> points_;
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

/// All combinations of a `search_space`, numbered, and where each lies in the unit cube: the
/// logarithm of a value between those of the smallest and of the largest one. A 0, which is no
/// small number but another way to work, lies in the middle, and at 1 in a dimension of its own.
class search_grid {
 public:
  /// Throws `option_error` for values that no loop can have, and for too many combinations.
  explicit search_grid(const search_space& space) {
    add("workers", &tuned_options::workers, space.workers, 0, 4096);
    add("chunk", &tuned_options::chunk, space.chunk, 0, no_limit);
    add("prefetch", &tuned_options::prefetch, space.prefetch, 0, most_slots - 1);
    add("depth", &tuned_options::depth, space.depth, 1, 1024);
    add("pinned", &tuned_options::pinned, space.pinned, 0, 1);
    add("batch_size", &tuned_options::batch_size, space.batch_size, 1, no_limit);
    if (axes_.empty()) throw option_error("search_space", "no option has a value");
  }

  /// How many combinations there are.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// How many options vary: have more than one value.
  [[nodiscard]] std::size_t varied() const noexcept {
    return static_cast<std::size_t>(std::count_if(
        axes_.begin(), axes_.end(), [](const axis& one) { return one.values.size() > 1; }));
  }
  /// How many values an option that is looked at has.
  [[nodiscard]] std::size_t values_of(std::size_t option) const noexcept {
    return axes_[option].values.size();
  }

  /// The combination where each option has the value of the given number.
  template <class NumberOf>
  [[nodiscard]] std::size_t where(NumberOf&& number_of) const {
    std::size_t point = 0;
    for (std::size_t option = axes_.size(); option-- > 0;) {
      point = point * axes_[option].values.size() + number_of(option);
    }
    return point;
  }

  /// The options of combination `point`.
  [[nodiscard]] tuned_options at(std::size_t point) const {
    tuned_options options;
    for (const axis& one : axes_) {
      options.*one.place = one.values[point % one.values.size()];
      point /= one.values.size();
    }
    return options;
  }

  /// The combination with these options; empty where the space has none.
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

  /// The coordinates of combination `point`.
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
  static constexpr std::size_t most = std::size_t{1} << 16;

  struct axis {
    tuned_place place;
    std::vector<std::size_t> values;  // each once, in order
  };

  void add(const char* name, tuned_place place, std::vector<std::size_t> values, std::size_t least,
           std::size_t highest) {
    if (values.empty()) return;
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (const std::size_t value : {values.front(), values.back()}) {
      if (value >= least && value <= highest) continue;
      refuse_option(name, {value, " is not in ", least, "..", highest});
    }
    if (values.size() > most / size_) {
      refuse_option("search_space", {"more than ", most, " combinations"});
    }
    size_ *= values.size();
    axes_.push_back({place, std::move(values)});
  }

  std::vector<axis> axes_;
  std::size_t size_ = 1;
};

}  // namespace detail

/// The options of an `option_search`. Bad values throw `option_error` at its construction.
struct search_options {
  /// What the first trials depend on, and with their costs all others.
  std::uint64_t seed = 0;
  /// The most trials, at least 1.
  std::size_t trials = 40;
  /// No trial is proposed after this much time since the construction; 0: there is no limit.
  std::chrono::duration<double> budget{0};
  /// The search ends when one more trial is expected to lower the cost by less than this share.
  double least_gain = 0.002;
};

/// Options that were tried, and what a loop with them cost.
struct trial {
  tuned_options options;  ///< what was tried
  double cost = 0;        ///< above 0; less is better

  friend bool operator==(const trial&, const trial&) = default;
};

/// Looks for the fastest options of a loop in few trials: Bayesian optimisation, with a Gaussian
/// process of the logarithm of the cost and expected improvement. A cost may be noisy; a trial that
/// is worth it is proposed again.
///
///     ps::option_search search{{.workers = {1, 2, 4, 8}, .depth = {2, 3, 4}}, {.seed = 1}};
///     while (const auto options = search.next()) search.note(*options, seconds_with(*options));
///     std::cout << ps::to_text(search.best());  // penstock_ext/search/tuned_text.hpp
///
/// What is proposed is a function of the space, the seed and the trials so far, in their order, so
/// a search continues where it ended when its trials are noted in a new one. One thread at a time.
class option_search {
 public:
  /// Throws `option_error` for a space or options that can't work.
  explicit option_search(const search_space& space, const search_options& options = {})
      : grid_(space), options_(options), excluded_(grid_.size(), false) {
    if (options.trials == 0) throw option_error("trials", "must be at least 1, is 0");
    if (!(options.budget.count() >= 0)) throw option_error("budget", "must not be negative");
    if (!(options.least_gain >= 0)) throw option_error("least_gain", "must not be negative");
  }

  /// What to try next; `std::nullopt` when the search is over: by its trials, by its budget, when
  /// nothing is left, or when no trial is expected to gain enough.
  [[nodiscard]] std::optional<tuned_options> next() const {
    if (trials_.size() >= options_.trials || is_late()) return std::nullopt;
    auto point = trials_.size() < first_trials() ? spread() : std::nullopt;
    if (!point && !trials_.empty()) point = best_expected();
    if (!point) return std::nullopt;
    return grid_.at(*point);
  }

  /// A loop with `options` has cost `cost`: seconds, or any number above 0 where less is better.
  /// Throws `option_error` for options that the space does not have, and for no such number.
  void note(const tuned_options& options, double cost) {
    const std::size_t point = require(options);
    if (!(cost > 0) || !std::isfinite(cost)) {
      throw option_error("cost", "must be a finite number above 0");
    }
    points_.push_back(point);
    trials_.push_back({options, cost});
  }

  /// `options` can't work, such as slots beyond the memory budget: they are not proposed again.
  void exclude(const tuned_options& options) { excluded_[require(options)] = true; }

  /// All that was noted, in its order.
  [[nodiscard]] const std::vector<trial>& trials() const noexcept { return trials_; }

  /// Of the options that were tried, those whose cost is expected to be the lowest, the noise taken
  /// off. Throws `std::logic_error` before the first trial.
  [[nodiscard]] const tuned_options& best() const {
    if (trials_.empty()) throw std::logic_error("option_search: nothing was tried");
    return trials_[best_tried(fitted())].options;
  }

 private:
  [[nodiscard]] bool is_late() const {
    return options_.budget.count() > 0 &&
           std::chrono::steady_clock::now() - began_ >= options_.budget;
  }

  [[nodiscard]] std::size_t require(const tuned_options& options) const {
    const auto point = grid_.find(options);
    if (!point) throw option_error("options", "are not among those of the search space");
    return *point;
  }

  /// How many trials are spread over the space before the process is asked.
  [[nodiscard]] std::size_t first_trials() const noexcept {
    return (std::min)(options_.trials, grid_.varied() + 2);
  }

  [[nodiscard]] bool is_free(std::size_t point) const noexcept {
    return !excluded_[point] && std::find(points_.begin(), points_.end(), point) == points_.end();
  }

  /// A combination that was not tried, with values that few trials had: the values of each option
  /// come in a random order, one a trial, as in a Latin hypercube.
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

  /// Of the trials, the one whose cost `process` expects to be the lowest.
  [[nodiscard]] std::size_t best_tried(const detail::gaussian_process& process) const {
    const auto best = std::ranges::min_element(
        points_, {}, [&](std::size_t point) { return process.at(grid_.coordinates(point)).mean; });
    return static_cast<std::size_t>(best - points_.begin());
  }

  /// The combination with the highest expected improvement upon the best one that was tried.
  [[nodiscard]] std::optional<std::size_t> best_expected() const {
    const auto process = fitted();
    const double least = process.at(grid_.coordinates(points_[best_tried(process)])).mean;
    std::optional<std::size_t> best;
    double most = std::log1p(options_.least_gain);
    for (std::size_t point = 0; point < grid_.size(); ++point) {
      if (excluded_[point]) continue;
      const double gain = detail::expected_improvement(process.at(grid_.coordinates(point)), least);
      if (gain > most) {
        most = gain;
        best = point;
      }
    }
    return best;
  }

  detail::search_grid grid_;
  search_options options_;
  std::vector<bool> excluded_;  // by combination
  std::vector<trial> trials_;
  std::vector<std::size_t> points_;  // of the trials, in the grid
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
