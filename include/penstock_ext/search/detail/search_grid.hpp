// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/search/search_space.hpp>
#include <penstock_ext/search/tuned_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// All combinations of a `search_space`, numbered, and where each lies in the unit cube: the
/// logarithm of a value between those of the smallest and of the largest one. A 0, which is no
/// small number but another way to work, lies in the middle, and at 1 in a dimension of its own.
class search_grid {
 public:
  /// Throws `option_error` for values that no loop can have, and for too many combinations.
  explicit search_grid(const search_space& space) {
    add("workers", &tuned_options::workers, space.workers, 0, 4096);
    add("run", &tuned_options::run, space.run, 0, no_limit);
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
  /// How many options are looked at, and how many values each of them has.
  [[nodiscard]] std::size_t options() const noexcept { return axes_.size(); }
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
}  // namespace PENSTOCK_ABI
}  // namespace penstock
