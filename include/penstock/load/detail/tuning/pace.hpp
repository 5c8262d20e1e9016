// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The mean of numbers that come one by one, and how sure it is.
class running_mean {
 public:
  /// One more number.
  void add(double value) noexcept {
    count_ += 1;
    const double off = value - mean_;
    mean_ += off / count_;
    squares_ += off * (value - mean_);
  }
  /// All numbers of another one.
  void add(const running_mean& other) noexcept {
    if (other.count_ <= 0) return;
    const double all = count_ + other.count_;
    const double off = other.mean_ - mean_;
    squares_ += other.squares_ + off * off * count_ * other.count_ / all;
    mean_ += off * other.count_ / all;
    count_ = all;
  }

  /// The mean; 0 of no number.
  [[nodiscard]] double mean() const noexcept { return mean_; }
  /// The variance of the mean; 0 of fewer than two numbers.
  [[nodiscard]] double variance_of_mean() const noexcept {
    return count_ < 2 ? 0.0 : squares_ / (count_ - 1) / count_;
  }
  /// How many numbers.
  [[nodiscard]] double count() const noexcept { return count_; }

 private:
  double count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // of what the numbers are off the mean, added up
};

/// How a loop ran with one setting: ticks a batch that it waited for reading and that it did not,
/// and how many readers were busy on average.
struct pace {
  running_mean step;
  running_mean waits;
  running_mean busy;  // a number a window

  /// One more window of the same setting. What the loop waited in it counts unless it lived on the
  /// batches that another setting had read ahead.
  void add(const pace& window, bool waits_count) noexcept {
    step.add(window.step);
    busy.add(window.busy);
    if (waits_count) waits.add(window.waits);
  }

  /// The ticks of a batch.
  [[nodiscard]] double ticks() const noexcept { return step.mean() + waits.mean(); }
  /// The share of them that it waited.
  [[nodiscard]] double waiting() const noexcept {
    return ticks() <= 0 ? 0.0 : waits.mean() / ticks();
  }
  /// Little's law: the readers that keep a loop supplied that does not wait, each of them busy all
  /// of its time.
  [[nodiscard]] double readers_needed() const noexcept {
    return busy.mean() / (std::max)(1.0 - waiting(), 1e-6);
  }
};

/// The time that a batch takes less with one setting than with another, as a share of it, and its
/// standard error squared.
struct gain {
  double share = 0;
  double variance = 0;

  /// Whether it is above `least` for all that is known, by so many standard errors.
  [[nodiscard]] bool is_above(double least, double errors) const noexcept {
    const double margin = share - least;
    return margin > 0 && margin * margin > errors * errors * variance;
  }
  /// Whether it is below `most`.
  [[nodiscard]] bool is_below(double most, double errors) const noexcept {
    const double margin = most - share;
    return margin > 0 && margin * margin > errors * errors * variance;
  }
};

/// Of `after` over `before`. With `by_waits` what the loop waited is all that may differ: the step
/// is the same for both, and its noise cancels out.
[[nodiscard]] inline gain gain_of(const pace& before, const pace& after, bool by_waits) noexcept {
  const double all = (std::max)(before.ticks(), 1.0);
  double less = before.waits.mean() - after.waits.mean();
  double variance = before.waits.variance_of_mean() + after.waits.variance_of_mean();
  if (!by_waits) {
    less += before.step.mean() - after.step.mean();
    variance += before.step.variance_of_mean() + after.step.variance_of_mean();
  }
  return {less / all, variance / (all * all)};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
