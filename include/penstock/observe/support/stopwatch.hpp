// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/observe/support/tick_clock.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/threads/support/shared_value.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What is known of a stopwatch.
struct stopwatch_state {
  std::uint64_t count = 0;     ///< how often it was started
  std::uint64_t ticks = 0;     ///< from each start to its stop
  std::uint64_t is_going = 0;  ///< 1: it was started last
  std::uint64_t since = 0;     ///< when
};

/// How often a thread has done one thing, such as wait for a slot, and for how long. One thread
/// starts and stops it; any thread reads it, and sees what is going on too.
class stopwatch {
 public:
  /// What a stopwatch shows.
  struct reading {
    std::uint64_t count = 0;  ///< how often it was started
    std::uint64_t ticks = 0;  ///< in all, up to the moment of reading
  };

  /// The timing thread: it goes from `now` on. One that goes, goes on.
  void start(std::uint64_t now) noexcept {
    if (kept_.is_going != 0) return;
    ++kept_.count;
    kept_.is_going = 1;
    kept_.since = now;
    shown_.store(kept_);
  }
  /// The timing thread: it stands from `now` on.
  void stop(std::uint64_t now) noexcept {
    if (kept_.is_going == 0) return;
    kept_.is_going = 0;
    kept_.ticks += ticks_between(kept_.since, now);
    shown_.store(kept_);
  }

  /// What it shows at `now`. From any thread.
  [[nodiscard]] reading read(std::uint64_t now) const noexcept {
    return reading_of(shown_.load(), now);
  }
  /// `read` without a wait: false, and no reading, while the timing thread writes.
  [[nodiscard]] bool try_read(std::uint64_t now, reading& shows) const noexcept {
    stopwatch_state seen;
    if (!shown_.try_load(seen)) return false;
    shows = reading_of(seen, now);
    return true;
  }

 private:
  [[nodiscard]] static reading reading_of(const stopwatch_state& seen, std::uint64_t now) noexcept {
    const std::uint64_t going = seen.is_going != 0 ? ticks_between(seen.since, now) : 0;
    return {seen.count, seen.ticks + going};
  }

  stopwatch_state kept_;  // of the timing thread
  shared_value<stopwatch_state> shown_;
};

/// Has a stopwatch go for as long as this lives; null: times nothing. What it times goes into a
/// trace too, where there is one.
template <class Clock>
class timed_scope {
 public:
  timed_scope(stopwatch* watch, const Clock& clock, trace_writer* trace = nullptr,
              trace_stage stage = {}) noexcept
      : watch_(watch), clock_(&clock), trace_(trace), stage_(stage) {
    if (watch_ == nullptr) return;
    began_ = clock_->now();
    watch_->start(began_);
  }
  timed_scope(timed_scope&&) = delete;
  ~timed_scope() {
    if (watch_ == nullptr) return;
    const std::uint64_t now = clock_->now();
    watch_->stop(now);
    if (trace_ != nullptr) [[unlikely]]
      trace_->note_wait(stage_, began_, now);
  }

 private:
  stopwatch* watch_;
  const Clock* clock_;
  trace_writer* trace_;
  trace_stage stage_;
  std::uint64_t began_ = 0;
};

/// Stands for the stopwatches of a thread whose waits are not timed.
struct unobserved {
  struct nothing {
    ~nothing() {}  // NOLINT(modernize-use-equals-default): a variable of it counts as used
  };
  [[nodiscard]] static nothing for_slot() noexcept { return {}; }
  [[nodiscard]] static nothing for_copy(bool) noexcept { return {}; }
  [[nodiscard]] static nothing for_demand() noexcept { return {}; }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
