// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
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
#include <penstock_ext/search/detail/gaussian_process.hpp>

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
  /// How many coordinates a combination has.
  [[nodiscard]] std::size_t dimensions() const noexcept { return dimensions_; }
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

  /// Appends the coordinates of combination `point`, `dimensions()` of them.
  void append_coordinates(std::size_t point, std::vector<double>& to) const {
    for (const axis& one : axes_) {
      const std::size_t value = one.values[point % one.values.size()];
      point /= one.values.size();
      const double range = std::log(one.highest / one.lowest);
      const double at =
          value == 0 ? 0.5 * range : std::log(static_cast<double>(value) / one.lowest);
      to.push_back(range > 0 ? at / range : 0.5);
      if (one.has_zero) to.push_back(value == 0 ? 1.0 : 0.0);
    }
  }

 private:
  static constexpr std::size_t no_limit = ~std::size_t{0};
  static constexpr std::size_t most = std::size_t{1} << 16;

  struct axis {
    tuned_place place;
    std::vector<std::size_t> values;  // each once, in order
    double lowest = 1;                // of those above 0
    double highest = 1;
    bool has_zero = false;
  };

  void add(const char* name, tuned_place place, std::vector<std::size_t> values, std::size_t least,
           std::size_t highest) {
    if (values.empty()) return;
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    for (const std::size_t value : {values.front(), values.back()}) {
      if (value >= least && value <= highest) continue;
      throw option_error(name, std::to_string(value) + " is not in " + std::to_string(least) +
                                   ".." + std::to_string(highest));
    }
    if (values.size() > most / size_) {
      throw option_error("search_space", "more than " + std::to_string(most) + " combinations");
    }
    size_ *= values.size();
    axis one{.place = place, .values = std::move(values)};
    one.has_zero = one.values.front() == 0 && one.values.size() > 1;
    const auto first = std::find_if(one.values.begin(), one.values.end(),
                                    [](std::size_t value) { return value > 0; });
    if (first != one.values.end()) {
      one.lowest = static_cast<double>(*first);
      one.highest = static_cast<double>(one.values.back());
    }
    dimensions_ += one.has_zero ? 2 : 1;
    axes_.push_back(std::move(one));
  }

  std::vector<axis> axes_;
  std::size_t size_ = 1;
  std::size_t dimensions_ = 0;
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

  [[nodiscard]] std::vector<double> coordinates(std::size_t point) const {
    std::vector<double> at;
    grid_.append_coordinates(point, at);
    return at;
  }

  [[nodiscard]] detail::gaussian_process fitted() const {
    std::vector<double> points;
    std::vector<double> values;
    for (std::size_t i = 0; i < trials_.size(); ++i) {
      grid_.append_coordinates(points_[i], points);
      values.push_back(std::log(trials_[i].cost));
    }
    return {std::move(points), grid_.dimensions(), std::move(values)};
  }

  /// Of the trials, the one whose cost `process` expects to be the lowest.
  [[nodiscard]] std::size_t best_tried(const detail::gaussian_process& process) const {
    const auto best = std::ranges::min_element(
        points_, {}, [&](std::size_t point) { return process.at(coordinates(point)).mean; });
    return static_cast<std::size_t>(best - points_.begin());
  }

  /// The combination with the highest expected improvement upon the best one that was tried.
  [[nodiscard]] std::optional<std::size_t> best_expected() const {
    const auto process = fitted();
    const double least = process.at(coordinates(points_[best_tried(process)])).mean;
    std::optional<std::size_t> best;
    double most = std::log1p(options_.least_gain);
    for (std::size_t point = 0; point < grid_.size(); ++point) {
      if (excluded_[point]) continue;
      const double gain = detail::expected_improvement(process.at(coordinates(point)), least);
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
