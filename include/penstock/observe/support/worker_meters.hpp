// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <penstock/core/support/cache_line.hpp>
#include <penstock/observe/support/histogram.hpp>
#include <penstock/observe/support/read_meter.hpp>
#include <penstock/observe/support/stopwatch.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/threads/support/tally.hpp>
#include <penstock/threads/support/thread_usage.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What is counted and timed of one thread that reads: it alone writes, any thread reads. On cache
/// lines of its own.
template <class Clock>
class alignas(cache_line) worker_meters {
 public:
  using scope = timed_scope<Clock>;

  /// For runs of at most `most_run` samples, by `clock`, which must outlive this. Where the thread
  /// is the loader's own, what it uses of the machine is noted too.
  worker_meters(const Clock& clock, std::size_t most_run, bool is_own_thread)
      : clock_(&clock),
        is_own_thread_(is_own_thread),
        usage_apart_(clock.ten_milliseconds()),
        reads_(clock, most_run) {}

  /// What it does and waits for is recorded by `trace` from now on; null: by none.
  void trace_to(std::shared_ptr<trace_writer> trace) noexcept {
    kept_trace_ = std::move(trace);
    trace_ = kept_trace_.get();
  }
  [[nodiscard]] const std::shared_ptr<trace_writer>& kept_trace() const noexcept {
    return kept_trace_;
  }
  /// What records it; or null.
  [[nodiscard]] trace_writer* trace() const noexcept { return trace_; }

  /// @name The reading thread, around all that it does, and around what it waits for
  /// @{
  [[nodiscard]] scope for_work() noexcept { return {&work_, *clock_}; }
  [[nodiscard]] scope for_opener() noexcept {
    return {&opener_, *clock_, trace_, trace_stage::wait_for_opener};
  }
  [[nodiscard]] scope for_seat() noexcept {
    if (trace_ != nullptr) trace_->leave();  // it may sleep for long: what was before is seen
    return {&seat_, *clock_, trace_, trace_stage::wait_for_seat};
  }
  [[nodiscard]] scope for_demand() noexcept {
    return {&demand_, *clock_, trace_, trace_stage::wait_for_demand};
  }
  [[nodiscard]] scope for_slot() noexcept {
    return {&slot_, *clock_, trace_, trace_stage::wait_for_slot};
  }
  [[nodiscard]] scope for_copy(bool is_behind_one) noexcept {
    return {is_behind_one ? &copy_ : nullptr, *clock_, trace_, trace_stage::wait_for_copy};
  }
  /// @}

  /// What it reads.
  [[nodiscard]] read_meter<Clock>& reads() noexcept { return reads_; }
  [[nodiscard]] const read_meter<Clock>& reads() const noexcept { return reads_; }

  /// The reading thread has opened a batch: when, for `close`.
  [[nodiscard]] std::uint64_t open() const noexcept { return clock_->now(); }
  /// The reading thread has completed the batch that was opened then. To be called before the
  /// batch is announced.
  void close(std::uint64_t opened) noexcept {
    const std::uint64_t now = clock_->now();
    complete_.add(1);
    batches_.add(ticks_between(opened, now));
    if (is_own_thread_) usage_.look(now, usage_apart_);
  }

  /// How many batches it has completed. From any thread, as all that follows.
  [[nodiscard]] std::uint64_t complete() const noexcept { return complete_.value(); }
  /// From opening to completing them.
  [[nodiscard]] const histogram& batches() const noexcept { return batches_; }
  /// The ticks by `now` in which it worked and did not wait.
  [[nodiscard]] std::uint64_t busy(std::uint64_t now) const noexcept {
    std::uint64_t waits = 0;
    for (const stopwatch* wait : {&opener_, &seat_, &demand_, &slot_, &copy_})
      waits += wait->read(now).ticks;
    return ticks_between(waits, work_.read(now).ticks);
  }
  /// Adds the busy ticks to `busy` without a wait: false, and nothing added, while the thread
  /// writes.
  [[nodiscard]] bool try_add_busy(std::uint64_t now, std::uint64_t& busy) const noexcept {
    std::uint64_t waits = 0;
    stopwatch::reading shows;
    for (const stopwatch* wait : {&opener_, &seat_, &demand_, &slot_, &copy_}) {
      if (!wait->try_read(now, shows)) return false;
      waits += shows.ticks;
    }
    if (!work_.try_read(now, shows)) return false;
    busy += ticks_between(waits, shows.ticks);
    return true;
  }
  [[nodiscard]] const stopwatch& opener() const noexcept { return opener_; }
  [[nodiscard]] const stopwatch& seat() const noexcept { return seat_; }
  [[nodiscard]] const stopwatch& demand() const noexcept { return demand_; }
  [[nodiscard]] const stopwatch& slot() const noexcept { return slot_; }
  [[nodiscard]] const stopwatch& copy() const noexcept { return copy_; }
  [[nodiscard]] const thread_usage& usage() const noexcept { return usage_; }

 private:
  const Clock* clock_;
  trace_writer* trace_ = nullptr;
  std::shared_ptr<trace_writer> kept_trace_;
  bool is_own_thread_;
  std::uint64_t usage_apart_;
  tally complete_;
  read_meter<Clock> reads_;
  stopwatch work_;
  stopwatch opener_;
  stopwatch seat_;
  stopwatch demand_;
  stopwatch slot_;
  stopwatch copy_;
  thread_usage usage_;
  histogram batches_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
