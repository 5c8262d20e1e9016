// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <penstock/load/detail/tuning/pace.hpp>
#include <penstock/load/detail/tuning/pace_meter.hpp>
#include <penstock/load/detail/tuning/rest_watch.hpp>
#include <penstock/load/detail/tuning/tuning_verdict.hpp>
#include <penstock/load/tuning_history.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Looks for the setting with which a loop's batches come soonest, while it runs. Told of each
/// batch, it says which setting is to be used from then on. Pure arithmetic: no clock, no thread,
/// no memory, and the same for the same numbers.
///
/// It measures 32 batches at the start and takes as many readers as Little's law asks for. Then it
/// compares the setting with one beside it, a window of each by turns, and keeps the other one if
/// it is better by more than the noise, or needs fewer readers and is as good. Where nothing beside
/// is better it rests: short at first, ever longer, until the loop has changed.
class climber {
 public:
  /// Where `least` and `most` are equal a number is fixed. A window lasts `least_window` ticks, as
  /// far as 64 batches do. With `keeps_depth` what was once read ahead takes memory for good.
  climber(const tuning_setting& start, const tuning_setting& least, const tuning_setting& most,
          double least_window, bool keeps_depth = false) noexcept
      : least_(least),
        most_(most),
        least_window_(least_window),
        keeps_depth_(keeps_depth),
        kept_(start),
        now_(start),
        tried_(start) {}

  /// The setting to be used.
  [[nodiscard]] const tuning_setting& now() const noexcept { return now_; }
  /// The one that was found best so far.
  [[nodiscard]] const tuning_setting& kept() const noexcept { return kept_; }

  /// What comes next is not what the last batch led to: a range begins.
  void pause() noexcept { meter_.pause(); }

  /// The consumer got a batch at `now`, and has waited `waited` ticks so far for batches to be
  /// read. `busy()` is called where a window begins or ends, and gives the ticks that all readers
  /// have worked, or nothing: then the window lasts one batch longer. Returns how a trial ended, if
  /// one did.
  template <class Busy>
  std::optional<tuning_verdict> note(std::uint64_t now, std::uint64_t waited, Busy busy) noexcept {
    const std::optional<pace> window = meter_.note(now, waited, length_, busy);
    return window ? end_window(*window) : std::nullopt;
  }

 private:
  enum class phase { estimate, jump, trial, rest };
  enum direction : std::size_t { up = 1, deeper = 2, down = 4 };

  static constexpr double first_look = 29;    // with the three before: 32 batches
  static constexpr double is_waiting = 0.02;  // a smaller share is not worth a move
  static constexpr double worth_it = 0.01;    // what a trial has to gain
  static constexpr double errors = 2;         // by how many standard errors
  static constexpr int most_pairs = 4;        // of windows a trial
  static constexpr int most_jumps = 4;

  std::optional<tuning_verdict> end_window(const pace& window) noexcept {
    if (phase_ == phase::jump) return end_jump(window);
    if (phase_ == phase::trial) return end_trial_window(window);
    if (phase_ == phase::rest && !is_over(window)) return std::nullopt;
    if (phase_ == phase::estimate) keep(window, 0);
    decide();
    return std::nullopt;
  }

  /// Chooses what is to be tried next, from the pace of the setting that is kept.
  void decide() noexcept {
    const std::size_t workers = kept_.workers;
    const std::size_t step = std::max<std::size_t>(1, workers / 8);
    const bool waits = base_.waiting() > is_waiting;
    const bool is_busy = base_.busy.mean() > 0.75 * static_cast<double>(workers);
    const bool may_rise = waits && workers < most_.workers && may(up);
    const tuning_setting more{(std::min)(workers + step, most_.workers), kept_.prefetch};
    if (may_rise && is_busy) {
      return jumps_ < most_jumps ? begin_jump() : begin_trial(up, more);
    }
    if (waits && kept_.prefetch < most_.prefetch && may(deeper)) {
      return begin_trial(deeper, {workers, (std::min)(2 * kept_.prefetch, most_.prefetch)});
    }
    if (may_rise) return begin_trial(up, more);
    const std::size_t least = (std::max)(least_.workers, floor_);
    if (workers > least && may(down)) {
      // Readers that are idle a tenth of their time can be spared where nothing waits for them.
      const std::size_t enough = std::clamp(ceiling(base_.busy.mean() / 0.9), least, workers);
      if (enough < workers) return begin_trial(down, {enough, kept_.prefetch});
      const std::size_t fewer = workers - (std::min)(step, workers - least);
      if (waits) return begin_trial(down, {fewer, kept_.prefetch});
    }
    begin_rest();
  }

  void begin_jump() noexcept {
    ++jumps_;
    // A twentieth more: with just as many as are needed on average each delay would be waited for.
    const std::size_t wanted = ceiling(base_.readers_needed() / 0.95);
    try_out(phase::jump, {std::clamp(wanted, kept_.workers + 1, most_.workers), kept_.prefetch});
  }
  std::optional<tuning_verdict> end_jump(const pace& window) noexcept {
    other_.add(window, true);
    ++pairs_;
    const gain seen = gain_of(base_, other_, false);
    const bool is_worse = seen.is_below(-worth_it, errors);
    const bool is_better = seen.is_above(worth_it, errors);
    if (pairs_ < most_pairs && !is_better && (!is_worse || pairs_ == 1)) return std::nullopt;
    const auto said = verdict(is_worse ? tuning_reason::went_back : tuning_reason::estimated);
    if (!is_worse) {
      if (is_better) floor_ = kept_.workers + 1;
      keep(other_, 0);
    } else {
      jumps_ = most_jumps;  // one step at a time
      use(kept_);
    }
    decide();
    return said;
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
  std::optional<tuning_verdict> end_trial_window(const pace& window) noexcept {
    const bool had_batches = lived_well_;
    lived_well_ = window.waiting() <= is_waiting;
    if (now_ == kept_) {
      base_.add(window, !had_batches || !lived_well_);
      use(tried_);
      return std::nullopt;
    }
    other_.add(window, true);
    ++pairs_;
    const gain seen = gain_of(base_, other_, by_waits_);
    const bool is_last = pairs_ == most_pairs;
    const bool for_good = trying_ == deeper && keeps_depth_;            // noise must not lead there
    const bool may_end = pairs_ > 1 || (trying_ != down && !for_good);  // not by one window
    const double sure = for_good ? 2 * errors : errors;
    if (may_end && seen.is_above(worth_it, sure)) return end_trial(tuning_reason::faster);
    if (trying_ != down) {
      if (is_last && !for_good && seen.is_above(worth_it, 1))
        return end_trial(tuning_reason::faster);
      if (is_last || seen.is_below(worth_it, errors)) return end_trial(tuning_reason::went_back);
    } else {
      if (seen.is_below(-worth_it, errors)) return end_trial(tuning_reason::went_back);
      if (may_end && seen.is_above(-worth_it, errors)) return end_trial(tuning_reason::no_slower);
      if (is_last) {
        const bool keeps = seen.is_above(-worth_it, 0) && seen.is_above(-5 * worth_it, errors);
        return end_trial(keeps ? tuning_reason::no_slower : tuning_reason::went_back);
      }
    }
    use(kept_);
    return std::nullopt;
  }
  std::optional<tuning_verdict> end_trial(tuning_reason why) noexcept {
    const auto said = verdict(why);
    if (why == tuning_reason::went_back) {
      failed_ |= trying_;
      if (pairs_ == most_pairs) unsure_ |= trying_;
      use(kept_);
    } else {
      if (trying_ == up) floor_ = tried_.workers;
      keep(other_, trying_ == down ? up : down);
    }
    decide();
    return said;
  }

  void begin_rest() noexcept {
    phase_ = phase::rest;
    rest_.begin(base_);
    use(kept_);
  }
  /// Whether a rest is, and something is to be tried again.
  [[nodiscard]] bool is_over(const pace& window) noexcept {
    const rest_watch::word said = rest_.note(window);
    if (said == rest_watch::word::rests) return false;
    if (said == rest_watch::word::changed) jumps_ = 0;
    failed_ &= ~std::exchange(unsure_, 0);
    if (said != rest_watch::word::is_over) failed_ = floor_ = 0;  // a chance for all
    base_ = rest_.seen();
    return true;
  }

  [[nodiscard]] bool may(direction where) const noexcept { return (failed_ & where) == 0; }
  [[nodiscard]] static std::size_t ceiling(double number) noexcept {
    return static_cast<std::size_t>(std::clamp(std::ceil(number), 1.0, 1e6));
  }
  [[nodiscard]] tuning_verdict verdict(tuning_reason why) const noexcept {
    return {kept_, tried_, why, base_.ticks(), other_.ticks()};
  }
  void keep(const pace& seen, std::size_t failed) noexcept {
    kept_ = tried_;
    base_ = seen;
    length_ = std::clamp(std::ceil(least_window_ / (std::max)(1.0, seen.ticks())), 8.0, 64.0);
    failed_ = failed;
    rest_.shorten();
  }
  void use(const tuning_setting& setting) noexcept {
    const bool is_less = setting.workers < now_.workers || setting.prefetch < now_.prefetch;
    if (setting != now_) meter_.settle(is_less ? 2 * now_.prefetch : 0);
    now_ = setting;
  }

  tuning_setting least_;
  tuning_setting most_;
  double least_window_;
  bool keeps_depth_;
  tuning_setting kept_;
  tuning_setting now_;
  pace_meter meter_;
  double length_ = first_look;  // of a window, in batches
  phase phase_ = phase::estimate;
  pace base_;               // of what is kept
  std::size_t failed_ = 0;  // directions that gained nothing from there
  std::size_t unsure_ = 0;  // of these, those that the noise hid: worth another look
  std::size_t floor_ = 0;   // with fewer workers batches came later
  int jumps_ = 0;
  direction trying_ = up;  // of a trial, as what follows
  tuning_setting tried_;
  pace other_;
  int pairs_ = 0;
  bool by_waits_ = false;
  bool lived_well_ = false;  // the last window left batches that were read ahead
  rest_watch rest_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
