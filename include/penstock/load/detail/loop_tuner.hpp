// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <penstock/load/detail/active_workers.hpp>
#include <penstock/load/detail/schedule.hpp>
#include <penstock/load/detail/tuner.hpp>
#include <penstock/load/options.hpp>
#include <penstock/load/support/hill_climber.hpp>
#include <penstock/load/support/loader_observer.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/trace_target.hpp>
#include <penstock/threads/support/cpus.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Tunes a loader while its loop runs: passes each batch to the hill climber, activates workers,
/// and limits how far the opener may read ahead. Only the consumer thread may use the tuner. After
/// construction, the tuner does not allocate or wait. Waking a worker costs a system call.
template <class>
class basic_loop_tuner final : public tuner {
 public:
  /// Creates a tuner for options for which `has_automatic` returns true.
  explicit basic_loop_tuner(const tuned_loader& tuned)
      : limits_ahead_(tuned.options.prefetch.is_automatic()),
        schedule_(&tuned.batches),
        active_workers_(&tuned.readers),
        metrics_(&tuned.observer),
        climber_(first(tuned), min_setting(tuned),
                 {tuned.options.workers.value(), tuned.slot_count - 1},
                 metrics_->ten_milliseconds() / 10),
        used_(climber_.now()),
        trace_(tuned.options.instrumentation.trace.add_track(metrics_->trace_flow(),
                                                             "penstock tuning")),
        log_(used_) {}

  /// @name Functions of `loop_tuning` @{
  [[nodiscard]] static std::unique_ptr<tuner> make(const tuned_loader& tuned) {
    return std::make_unique<basic_loop_tuner>(tuned);
  }
  [[nodiscard]] static std::size_t cpus() { return usable_cpus(); }
  /// @}

  void begin(std::uint64_t next) noexcept override {
    climber_.pause();
    since_ = metrics_->ticks();
    if (limits_ahead_) allow(next);
  }
  void end() noexcept override { record(metrics_->ticks()); }
  void take(std::uint64_t next) noexcept override {
    const std::uint64_t now = metrics_->ticks();
    const auto result = climber_.record(now, metrics_->waited_for_ready(now),
                                        [&] { return metrics_->busy_readers(now); });
    if (result) log_.add(next, *result, climber_.kept());
    if (climber_.now() != used_) {
      record(now);
      used_ = climber_.now();
      active_workers_->open(used_.workers);
    }
    if (limits_ahead_) allow(next);
  }

  [[nodiscard]] tuning_history history() const override { return log_.snapshot(metrics_->times()); }
  void park(std::size_t worker, claim_cursor<>& cursor, worker_meters& metrics) noexcept override {
    detail::park(*active_workers_, worker, cursor, metrics);
  }

 private:
  [[nodiscard]] static tuning_setting first(const tuned_loader& tuned) noexcept {
    const std::size_t usual = default_prefetch(tuned.options, tuned.slot_bytes);
    const std::size_t max = tuned.slot_count - 1;
    const bool is_automatic = tuned.options.prefetch.is_automatic();
    return {first_workers(tuned.options), is_automatic ? (std::min)(usual, max) : max};
  }
  [[nodiscard]] static tuning_setting min_setting(const tuned_loader& tuned) noexcept {
    const bool is_automatic = tuned.options.prefetch.is_automatic();
    return {first_workers(tuned.options), is_automatic ? 1 : tuned.slot_count - 1};
  }

  /// Allows the opener to read ahead. As in `host_slots`, a sleeping opener is not woken for each
  /// batch, but only when it may open half of the batches to read ahead. The opener sleeps when all
  /// allowed batches are bound. Therefore the consumer reaches that half before it runs out of
  /// batches, even if the number of batches to read ahead has doubled since then.
  void allow(std::uint64_t next) noexcept {
    const bool wakes = next >= woken_at_ + std::max<std::size_t>(1, used_.prefetch / 2);
    if (wakes) woken_at_ = next;
    schedule_->allow(next + used_.prefetch, wakes);
  }

  /// Records that the setting was in use until `now`.
  void record(std::uint64_t now) noexcept {
    if (trace_ != nullptr) {
      trace_->add_setting(trace_stage::setting, since_, now, used_.workers, used_.prefetch);
    }
    since_ = now;
  }

  bool limits_ahead_;
  schedule* schedule_;
  active_workers* active_workers_;
  loader_observer* metrics_;
  hill_climber climber_;
  tuning_setting used_;
  std::uint64_t woken_at_ = 0;
  std::uint64_t since_ = 0;            // start of the current setting or range
  std::shared_ptr<trace_sink> trace_;  // null without a trace
  tuning_log log_;
};

/// The tuner of a loader.
using loop_tuner = basic_loop_tuner<void>;

/// The function table of `basic_loop_tuner<Named>`.
template <class Named>
inline constexpr loop_tuning loop_tuning_of{&basic_loop_tuner<Named>::make,
                                            &basic_loop_tuner<Named>::cpus};

template <class Named>
constexpr const loop_tuning* loop_tuning::code() noexcept {
  return &loop_tuning_of<Named>;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
