// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <penstock/load/detail/active_workers.hpp>
#include <penstock/load/detail/plan.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/hill_climber.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Tunes a loader while its loop runs: passes each batch to the hill climber, activates workers,
/// and sets how far the opener may read ahead. For the consumer's thread. After construction it
/// allocates nothing and waits for nothing; a system call where a worker is woken.
class loop_tuner {
 public:
  /// For resolved options, of which `has_automatic` holds, and so many slots of so many bytes.
  loop_tuner(const loader_options& options, std::size_t slot_count, std::size_t slot_bytes,
             schedule& batches, active_workers& readers, loader_observer& seen)
      : limits_ahead_(options.prefetch == automatic),
        schedule_(&batches),
        active_workers_(&readers),
        seen_(&seen),
        climber_(first(options, slot_count, slot_bytes), least(options, slot_count),
                 {options.workers, slot_count - 1}, seen.ten_milliseconds() / 10),
        used_(climber_.now()),
        log_(used_) {
    if (options.observe.trace == nullptr) return;
    trace_ = options.observe.trace->add_track("penstock tuning", seen.trace_flow(),
                                              options.observe.trace->capacity());
  }

  /// A range begins, and its first batch is `next`.
  void begin(std::uint64_t next) noexcept {
    climber_.pause();
    since_ = seen_->ticks();
    if (limits_ahead_) allow(next);
  }
  /// The range is over.
  void end() noexcept { record(seen_->ticks()); }
  /// The consumer has got a batch, and asks for `next` later.
  void take(std::uint64_t next) noexcept {
    const std::uint64_t now = seen_->ticks();
    const auto said =
        climber_.note(now, seen_->waited_for_ready(now), [&] { return seen_->busy_readers(now); });
    if (said) log_.add(next, *said, climber_.kept());
    if (climber_.now() != used_) {
      record(now);
      used_ = climber_.now();
      active_workers_->open(used_.workers);
    }
    if (limits_ahead_) allow(next);
  }

  /// What it has come to. From any thread.
  [[nodiscard]] tuning_history history() const { return log_.snapshot(seen_->times()); }

 private:
  [[nodiscard]] static tuning_setting first(const loader_options& options, std::size_t slot_count,
                                            std::size_t slot_bytes) noexcept {
    const std::size_t usual = usual_prefetch(options, slot_bytes);
    const bool is_automatic = options.prefetch == automatic;
    return {first_workers(options),
            is_automatic ? (std::min)(usual, slot_count - 1) : slot_count - 1};
  }
  [[nodiscard]] static tuning_setting least(const loader_options& options,
                                            std::size_t slot_count) noexcept {
    return {first_workers(options), options.prefetch == automatic ? 1 : slot_count - 1};
  }

  /// An opener that sleeps is woken when it may open half of what is read ahead, and not for each
  /// batch, as in `host_slots`. It sleeps where all that was allowed is bound, so the consumer has
  /// that many batches to take first: it passes the half, also where it is that of twice as many,
  /// before it runs out.
  void allow(std::uint64_t next) noexcept {
    const bool wakes = next >= woken_at_ + std::max<std::size_t>(1, used_.prefetch / 2);
    if (wakes) woken_at_ = next;
    schedule_->allow(next + used_.prefetch, wakes);
  }

  /// The setting was in use until `now`.
  void record(std::uint64_t now) noexcept {
    if (trace_ != nullptr) {
      trace_->add_setting(trace_stage::setting, since_, now, used_.workers, used_.prefetch);
    }
    since_ = now;
  }

  bool limits_ahead_;
  schedule* schedule_;
  active_workers* active_workers_;
  loader_observer* seen_;
  hill_climber climber_;
  tuning_setting used_;
  std::uint64_t woken_at_ = 0;
  std::uint64_t since_ = 0;              // when the setting, or the range, began
  std::shared_ptr<trace_writer> trace_;  // null: not traced
  tuning_log log_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
