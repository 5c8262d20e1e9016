// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The result of a trial, with the ticks per batch before and after the change.
struct trial_result {
  tuning_setting from;
  tuning_setting to;
  tuning_reason why = tuning_reason::went_back;
  double ticks_from = 0;
  double ticks_to = 0;
};

/// The mean of a series of values, and the variance of this mean.
class running_mean {
 public:
  /// Adds a value.
  void add(double value) noexcept {
    count_ += 1;
    const double off = value - mean_;
    mean_ += off / count_;
    squares_ += off * (value - mean_);
  }
  /// Adds all values of `other`.
  void add(const running_mean& other) noexcept {
    if (other.count_ <= 0) return;
    const double all = count_ + other.count_;
    const double off = other.mean_ - mean_;
    squares_ += other.squares_ + off * off * count_ * other.count_ / all;
    mean_ += off * other.count_ / all;
    count_ = all;
  }

  /// Returns the mean, or 0 if no value was added.
  [[nodiscard]] double mean() const noexcept { return mean_; }
  /// Returns the variance of the mean, or 0 with fewer than two values.
  [[nodiscard]] double variance_of_mean() const noexcept {
    return count_ < 2 ? 0.0 : squares_ / (count_ - 1) / count_;
  }
  /// Returns the number of values added.
  [[nodiscard]] double count() const noexcept { return count_; }

 private:
  double count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // sum of squared deviations from the mean
};

/// The measured pace of a loop with one setting. For each batch, the pace contains the ticks that
/// the loop waited for reads, and all other ticks. For each window, it contains the average number
/// of busy readers.
struct pace {
  running_mean step;
  running_mean waits;
  running_mean busy;  // one value per window

  /// Adds a window of the same setting. If `waits_count` is false, omits the waits of the window,
  /// because the window used batches read ahead with another setting.
  void add(const pace& window, bool waits_count) noexcept {
    step.add(window.step);
    busy.add(window.busy);
    if (waits_count) waits.add(window.waits);
  }

  /// Returns the ticks per batch.
  [[nodiscard]] double ticks() const noexcept { return step.mean() + waits.mean(); }
  /// Returns the fraction of the ticks in which the loop waited.
  [[nodiscard]] double waiting() const noexcept {
    return ticks() <= 0 ? 0.0 : waits.mean() / ticks();
  }
  /// Returns the number of fully busy readers that supply the loop without a wait, according to
  /// Little's law.
  [[nodiscard]] double readers_needed() const noexcept {
    return busy.mean() / (std::max)(1.0 - waiting(), 1e-6);
  }
};

/// The relative reduction in batch time of one setting over another, and the squared standard
/// error.
struct gain {
  double share = 0;
  double variance = 0;

  /// Returns true if the gain exceeds `min` by more than `errors` standard errors.
  [[nodiscard]] bool is_above(double min, double errors) const noexcept {
    const double margin = share - min;
    return margin > 0 && margin * margin > errors * errors * variance;
  }
  /// Returns true if the gain is below `max` by more than `errors` standard errors.
  [[nodiscard]] bool is_below(double max, double errors) const noexcept {
    return gain{-share, variance}.is_above(-max, errors);
  }
};

/// Returns the gain of `after` over `before`. If `by_waits` is true, the settings can differ only
/// in the waits. In that case, the step is the same for both, so its noise is excluded.
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

/// Measures the pace of a loop in windows. A window is a number of batches read with one setting.
/// Only one thread may use this object.
class throughput_window {
 public:
  /// Discards the current window. The next window starts some batches later, when the new setting
  /// has an effect. If the loop may still use batches that were read ahead, the window starts after
  /// a batch that was waited for, but after `read_ahead` batches at the latest.
  void settle(std::uint64_t read_ahead = 0) noexcept {
    unsettled_ = settling;
    read_ahead_ = read_ahead;
    window_ = {};
  }
  /// Records the start of a range. Skips some batches, because the time to the first batch is not
  /// representative. The current window continues after these batches, because short ranges would
  /// otherwise never fill a window.
  void pause() noexcept { is_fresh_ = true; }

  /// Records that the consumer received a batch at `now`, after waiting a total of `waited` ticks
  /// for reads. Calls `busy()` at the start and the end of a window. `busy()` returns the ticks
  /// that all readers have worked, or nothing, in which case the window starts or ends one batch
  /// later. Returns a window of at least `length` batches if one ends with this batch.
  template <class Busy>
  std::optional<pace> record(std::uint64_t now, std::uint64_t waited, double length,
                             Busy& busy) noexcept {
    const double all = since(last_, now);
    const double waits = (std::min)(all, since(waited_, waited));
    last_ = now;
    waited_ = waited;
    if (is_fresh_) {
      is_fresh_ = false;
      unsettled_ = settling;
      read_ahead_ = 0;
      return std::nullopt;
    }
    if (read_ahead_ != 0) {
      read_ahead_ = waits > 0 ? 0 : read_ahead_ - 1;
      return std::nullopt;
    }
    if (unsettled_ > 1) {
      --unsettled_;
      return std::nullopt;
    }
    if (unsettled_ == 1) {
      if (const std::optional<std::uint64_t> worked = busy()) begin(now, *worked);
      return std::nullopt;
    }
    window_.step.add(all - waits);
    window_.waits.add(waits);
    if (window_.waits.count() < length) return std::nullopt;
    const std::optional<std::uint64_t> worked = busy();
    if (!worked) return std::nullopt;
    pace whole = window_;
    // Covers only the part of the window after the last pause, which suffices because the value is
    // a rate.
    whole.busy.add(since(worked_, *worked) / (std::max)(1.0, since(began_, now)));
    window_ = {};
    begin(now, *worked);
    return whole;
  }

 private:
  static constexpr unsigned settling = 2;

  static double since(std::uint64_t before, std::uint64_t after) noexcept {
    return after > before ? static_cast<double>(after - before) : 0.0;
  }
  void begin(std::uint64_t now, std::uint64_t worked) noexcept {
    unsettled_ = 0;
    began_ = now;
    worked_ = worked;
  }

  bool is_fresh_ = true;
  unsigned unsettled_ = settling;  // number of batches to skip until a window begins
  std::uint64_t read_ahead_ = 0;   // maximum number of batches to skip before these
  std::uint64_t last_ = 0;
  std::uint64_t waited_ = 0;
  std::uint64_t began_ = 0;
  std::uint64_t worked_ = 0;
  pace window_;
};

/// Observes a loop that uses the best known setting. Detects that the loop has changed, and decides
/// when to try other settings again, each time after a longer rest.
class idle_phase {
 public:
  /// The state of a rest after a measurement window.
  enum class state {
    rests,    ///< the rest continues
    is_over,  ///< the rest has lasted long enough
    is_long,  ///< like `is_over`, but after a long rest, so failed directions may be tried again
    changed,  ///< the loop has changed
  };

  /// Starts a rest. `settled` is the pace of the accepted setting.
  void begin(const pace& settled) noexcept {
    settled_ = settled;
    window_ = {};
    odd_windows_ = 0;
  }
  /// Resets the length of the next rest to the minimum.
  void shorten() noexcept { length_ = shortest; }

  /// Records a window of the current rest. Returns the state of the rest after the window.
  [[nodiscard]] state record(const pace& window) noexcept {
    window_.add(window, true);
    // An abrupt change must appear in two consecutive windows, because a single window may be
    // noise. A small change appears in the mean of all windows.
    odd_windows_ = is_other(window, 2) ? odd_windows_ + 1 : 0;
    const double rested = window_.waits.count();
    const bool has_drifted = rested >= enough && is_other(window_, 1);
    if (odd_windows_ == 2 || has_drifted) {
      if (odd_windows_ == 2) window_ = window;
      length_ = shortest;
      return state::changed;
    }
    if (rested < length_) return state::rests;
    const bool is_long = length_ >= long_ago;
    length_ = (std::min)(2 * length_, longest);
    return is_long ? state::is_long : state::is_over;
  }
  /// Returns the pace of the loop during the rest.
  [[nodiscard]] const pace& window() const noexcept { return window_; }

 private:
  static constexpr double enough = 32;  // in batches, like the next three constants
  static constexpr double shortest = 64;
  static constexpr double long_ago = 1024;
  static constexpr double longest = 16384;
  static constexpr double errors = 2;  // number of standard errors that a change must exceed

  [[nodiscard]] bool is_other(const pace& now, double times) const noexcept {
    const auto is_off = [](const gain& change, double share) {
      return change.is_above(share, errors) || change.is_below(-share, errors);
    };
    return is_off(gain_of(settled_, now, true), 0.03 * times) ||
           is_off(gain_of(settled_, now, false), 0.15 * times);
  }

  pace settled_;
  pace window_;
  double length_ = shortest;
  int odd_windows_ = 0;
};

/// Searches for the setting with the shortest batch time while a loop runs. The caller records each
/// batch, and uses the setting returned by `now`. Deterministic, without clocks, threads or
/// allocations.
///
/// The search measures 32 batches at the start and uses as many readers as Little's law requires.
/// Then it compares the setting with a neighbor in alternating windows. The neighbor is accepted if
/// it is better by more than the noise, or if it is as good with fewer readers. If no neighbor is
/// better, the search rests. Rests are short at first and become longer, until the loop changes.
class hill_climber {
 public:
  /// Searches between `min` and `max`. A value that is equal in both is fixed. A window lasts
  /// `min_window` ticks, but at most 64 batches. `keeps_depth` is true if memory for a larger depth
  /// is never freed.
  hill_climber(const tuning_setting& start, const tuning_setting& min, const tuning_setting& max,
               double min_window, bool keeps_depth = false) noexcept
      : min_(min),
        max_(max),
        min_window_(min_window),
        keeps_depth_(keeps_depth),
        retained_(start),
        now_(start),
        tried_(start) {}

  /// Returns the setting to use.
  [[nodiscard]] const tuning_setting& now() const noexcept { return now_; }
  /// Returns the best setting so far.
  [[nodiscard]] const tuning_setting& kept() const noexcept { return retained_; }

  /// Records the start of a range, whose first batch is not timed.
  void pause() noexcept { meter_.pause(); }

  /// Records that the consumer received a batch at `now`, after waiting a total of `waited` ticks
  /// for reads. Calls `busy()` at the start and the end of a window. `busy()` returns the ticks
  /// that all readers have worked, or nothing, in which case the window lasts one batch longer.
  /// Returns the result of a trial if one ends with this batch.
  template <class Busy>
  std::optional<trial_result> record(std::uint64_t now, std::uint64_t waited, Busy busy) noexcept {
    const std::optional<pace> window = meter_.record(now, waited, length_, busy);
    return window ? end_window(*window) : std::nullopt;
  }

 private:
  enum class phase { estimate, jump, trial, rest };
  enum direction : std::size_t { up = 1, deeper = 2, down = 4 };

  // Number of batches; 32 including the three batches before.
  static constexpr double first_look = 29;
  // If a loop waits for a smaller fraction of its time, that does not justify a move.
  static constexpr double is_waiting = 0.02;
  static constexpr double worth_it = 0.01;  // fraction that a trial must gain
  static constexpr double errors = 2;       // a gain must exceed this number of standard errors
  static constexpr int max_pairs = 4;       // pairs of windows in a trial
  static constexpr int max_jumps = 4;

  std::optional<trial_result> end_window(const pace& window) noexcept {
    if (phase_ == phase::jump) return end_jump(window);
    if (phase_ == phase::trial) return end_trial_window(window);
    if (phase_ == phase::rest && !is_over(window)) return std::nullopt;
    if (phase_ == phase::estimate) keep(window, 0);
    decide();
    return std::nullopt;
  }

  /// Chooses the next setting from the pace of the accepted setting, and starts to try it. Starts a
  /// rest if no setting is worth a try.
  void decide() noexcept {
    const std::size_t workers = retained_.workers;
    const std::size_t step = std::max<std::size_t>(1, workers / 8);
    const bool waits = base_.waiting() > is_waiting;
    const bool is_busy = base_.busy.mean() > 0.75 * static_cast<double>(workers);
    const bool may_rise = waits && workers < max_.workers && may(up);
    const tuning_setting more{(std::min)(workers + step, max_.workers), retained_.prefetch};
    if (may_rise && is_busy) {
      return jumps_ < max_jumps ? begin_jump() : begin_trial(up, more);
    }
    if (waits && retained_.prefetch < max_.prefetch && may(deeper)) {
      return begin_trial(deeper, {workers, (std::min)(2 * retained_.prefetch, max_.prefetch)});
    }
    if (may_rise) return begin_trial(up, more);
    const std::size_t min = (std::max)(min_.workers, floor_);
    if (workers > min && may(down)) {
      // If the loop never waits, and the readers are idle for a tenth of the time, not all of them
      // are needed.
      const std::size_t enough = std::clamp(ceiling(base_.busy.mean() / 0.9), min, workers);
      if (enough < workers) return begin_trial(down, {enough, retained_.prefetch});
      const std::size_t fewer = workers - (std::min)(step, workers - min);
      if (waits) return begin_trial(down, {fewer, retained_.prefetch});
    }
    begin_rest();
  }

  void begin_jump() noexcept {
    ++jumps_;
    // Adds a twentieth to the average need. Otherwise, the loop would have to wait whenever a read
    // is delayed.
    const std::size_t wanted = ceiling(base_.readers_needed() / 0.95);
    try_out(phase::jump,
            {std::clamp(wanted, retained_.workers + 1, max_.workers), retained_.prefetch});
  }
  std::optional<trial_result> end_jump(const pace& window) noexcept {
    other_.add(window, true);
    ++pairs_;
    const gain change = gain_of(base_, other_, false);
    const bool is_worse = change.is_below(-worth_it, errors);
    const bool is_better = change.is_above(worth_it, errors);
    if (pairs_ < max_pairs && !is_better && (!is_worse || pairs_ == 1)) return std::nullopt;
    const auto result = result_of(is_worse ? tuning_reason::went_back : tuning_reason::estimated);
    if (!is_worse) {
      if (is_better) floor_ = retained_.workers + 1;
      keep(other_, 0);
    } else {
      jumps_ = max_jumps;  // only single steps after this point
      use(retained_);
    }
    decide();
    return result;
  }

  void begin_trial(direction where, const tuning_setting& other) noexcept {
    trying_ = where;
    by_waits_ = where == down && base_.waiting() <= is_waiting;
    try_out(phase::trial, other);
  }
  void try_out(phase how, const tuning_setting& other) noexcept {
    phase_ = how;
    tried_ = other;
    other_ = {};
    pairs_ = 0;
    use(tried_);
  }
  std::optional<trial_result> end_trial_window(const pace& window) noexcept {
    const bool had_batches = window_was_prefetched_;
    window_was_prefetched_ = window.waiting() <= is_waiting;
    if (now_ == retained_) {
      base_.add(window, !had_batches || !window_was_prefetched_);
      use(tried_);
      return std::nullopt;
    }
    other_.add(window, true);
    ++pairs_;
    const gain change = gain_of(base_, other_, by_waits_);
    const bool is_last = pairs_ == max_pairs;
    const bool for_good = trying_ == deeper && keeps_depth_;  // the memory stays allocated
    // a single pair may be noise
    const bool may_end = pairs_ > 1 || (trying_ != down && !for_good);
    const double sure = for_good ? 2 * errors : errors;
    if (may_end && change.is_above(worth_it, sure)) return end_trial(tuning_reason::faster);
    if (trying_ != down) {
      if (is_last && !for_good && change.is_above(worth_it, 1))
        return end_trial(tuning_reason::faster);
      if (is_last || change.is_below(worth_it, errors)) return end_trial(tuning_reason::went_back);
    } else {
      if (change.is_below(-worth_it, errors)) return end_trial(tuning_reason::went_back);
      if (may_end && change.is_above(-worth_it, errors)) return end_trial(tuning_reason::no_slower);
      if (is_last) {
        const bool keeps = change.is_above(-worth_it, 0) && change.is_above(-5 * worth_it, errors);
        return end_trial(keeps ? tuning_reason::no_slower : tuning_reason::went_back);
      }
    }
    use(retained_);
    return std::nullopt;
  }
  std::optional<trial_result> end_trial(tuning_reason why) noexcept {
    const auto result = result_of(why);
    if (why == tuning_reason::went_back) {
      failed_ |= trying_;
      if (pairs_ == max_pairs) unsure_ |= trying_;
      use(retained_);
    } else {
      if (trying_ == up) floor_ = tried_.workers;
      keep(other_, trying_ == down ? up : down);
    }
    decide();
    return result;
  }

  void begin_rest() noexcept {
    phase_ = phase::rest;
    rest_.begin(base_);
    use(retained_);
  }
  /// Returns true if the rest is over and another setting may be tried.
  [[nodiscard]] bool is_over(const pace& window) noexcept {
    const idle_phase::state idle = rest_.record(window);
    if (idle == idle_phase::state::rests) return false;
    if (idle == idle_phase::state::changed) jumps_ = 0;
    failed_ &= ~std::exchange(unsure_, 0);
    if (idle != idle_phase::state::is_over) failed_ = floor_ = 0;  // allows all directions again
    base_ = rest_.window();
    return true;
  }

  [[nodiscard]] bool may(direction where) const noexcept { return (failed_ & where) == 0; }
  [[nodiscard]] static std::size_t ceiling(double number) noexcept {
    const double near = std::clamp(number, 1.0, 1e6);
    const auto whole = static_cast<std::size_t>(near);
    return whole + (static_cast<double>(whole) < near ? 1 : 0);
  }
  [[nodiscard]] trial_result result_of(tuning_reason why) const noexcept {
    return {retained_, tried_, why, base_.ticks(), other_.ticks()};
  }
  void keep(const pace& window, std::size_t failed) noexcept {
    retained_ = tried_;
    base_ = window;
    const std::size_t enough = ceiling(min_window_ / (std::max)(1.0, window.ticks()));
    length_ = std::clamp(static_cast<double>(enough), 8.0, 64.0);
    failed_ = failed;
    rest_.shorten();
  }
  void use(const tuning_setting& setting) noexcept {
    const bool is_less = setting.workers < now_.workers || setting.prefetch < now_.prefetch;
    if (setting != now_) meter_.settle(is_less ? 2 * now_.prefetch : 0);
    now_ = setting;
  }

  tuning_setting min_;
  tuning_setting max_;
  double min_window_;
  bool keeps_depth_;
  tuning_setting retained_;
  tuning_setting now_;
  throughput_window meter_;
  double length_ = first_look;  // length of a window in batches
  phase phase_ = phase::estimate;
  pace base_;               // pace of the accepted setting
  std::size_t failed_ = 0;  // directions that gave no gain over the accepted setting
  std::size_t unsure_ = 0;  // directions in `failed_` without a significant result
  std::size_t floor_ = 0;   // minimum number of workers, because fewer workers have delayed batches
  int jumps_ = 0;
  direction trying_ = up;  // direction of the trial
  tuning_setting tried_;
  pace other_;
  int pairs_ = 0;
  bool by_waits_ = false;
  bool window_was_prefetched_ = false;  // true if batches read ahead in the last window are left
  idle_phase rest_;
};

/// A move of the search, and the index of the batch at which it ended.
struct logged_move {
  std::uint64_t batch = 0;
  trial_result result;
};

/// The most recent moves. Move `n` is at index `n % max`.
struct logged_moves {
  static constexpr std::size_t max = 32;
  tuning_setting now;
  std::uint64_t count = 0;
  std::array<logged_move, max> moves{};
};

/// The most recent moves of a loader. One thread writes, and any thread reads. Does not allocate
/// after construction, except in `snapshot`.
class tuning_log {
 public:
  explicit tuning_log(const tuning_setting& now) noexcept {
    retained_.now = now;
    shown_.store(retained_);
  }

  /// Records that a trial ended at batch index `batch`, and that `now` is the accepted setting.
  /// Only the writing thread may call this.
  void add(std::uint64_t batch, const trial_result& result, const tuning_setting& now) noexcept {
    retained_.moves[retained_.count % logged_moves::max] = {batch, result};
    ++retained_.count;
    retained_.now = now;
    shown_.store(retained_);
  }

  /// Returns the moves so far, with ticks converted to times. Allocates memory.
  [[nodiscard]] tuning_history snapshot(const tick_times& times) const {
    const logged_moves shown = shown_.load();
    const auto time = [&](double ticks) { return time_of(ticks, times.nanoseconds_per_tick); };
    tuning_history all{.now = shown.now, .count = shown.count, .moves = {}};
    const std::uint64_t left = (std::min<std::uint64_t>)(shown.count, logged_moves::max);
    all.moves.reserve(left);
    for (std::uint64_t move = shown.count - left; move < shown.count; ++move) {
      const logged_move& one = shown.moves[move % logged_moves::max];
      all.moves.push_back({one.batch, one.result.from, one.result.to, one.result.why,
                           time(one.result.ticks_from), time(one.result.ticks_to)});
    }
    return all;
  }

 private:
  logged_moves retained_;  // used only by the writing thread
  shared_value<logged_moves> shown_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
