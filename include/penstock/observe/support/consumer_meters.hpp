// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <penstock/core/support/cache_line.hpp>
#include <penstock/observe/support/stopwatch.hpp>
#include <penstock/observe/support/trace_writer.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/threads/support/tally.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What is counted and timed of the thread that takes batches, from a loader or from a transfer: it
/// alone writes, any thread reads. On cache lines of its own.
template <class Clock>
class alignas(cache_line) consumer_meters {
 public:
  using scope = timed_scope<Clock>;

  /// By `clock`, which must outlive this.
  explicit consumer_meters(const Clock& clock) noexcept : clock_(&clock) {}

  /// What it waits for is recorded by `trace` from now on; null: by none.
  void trace_to(std::shared_ptr<trace_writer> trace) noexcept {
    kept_trace_ = std::move(trace);
    trace_ = kept_trace_.get();
  }
  [[nodiscard]] const std::shared_ptr<trace_writer>& kept_trace() const noexcept {
    return kept_trace_;
  }
  /// What records it; or null.
  [[nodiscard]] trace_writer* trace() const noexcept { return trace_; }

  /// @name The consumer's thread
  /// @{
  void begin_range() noexcept { range_.start(clock_->now()); }
  void end_range() noexcept {
    range_.stop(clock_->now());
    if (trace_ != nullptr) trace_->leave();
  }
  /// Around a wait for the batch that is next, unless it is there.
  [[nodiscard]] scope for_batch(bool is_missing = true) noexcept {
    return {is_missing ? &batch_ : nullptr, *clock_, trace_, trace_stage::wait_for_batch};
  }
  /// Around a wait for the end of a lease.
  [[nodiscard]] scope for_lease() noexcept {
    return {&lease_, *clock_, trace_, trace_stage::wait_for_lease};
  }
  /// Around a wait for the end of a copy, if it is one.
  [[nodiscard]] scope for_copy(bool is_waited_for) noexcept {
    return {is_waited_for ? &copy_ : nullptr, *clock_, trace_, trace_stage::wait_for_copy};
  }
  /// It gets a batch.
  void note_batch(std::uint64_t samples) noexcept {
    batches_.add(1);
    samples_.add(samples);
  }
  /// The ragged fields of that batch have so many bytes.
  void note_values(std::uint64_t bytes) noexcept { values_.add(bytes); }
  /// It has looked how many batches come after.
  void note_depth(std::uint64_t batches) noexcept {
    looks_.add(1);
    depths_.add(batches);
  }
  /// @}

  /// How long ranges were live. From any thread, as all that follows.
  [[nodiscard]] const stopwatch& range() const noexcept { return range_; }
  [[nodiscard]] const stopwatch& batch() const noexcept { return batch_; }
  [[nodiscard]] const stopwatch& lease() const noexcept { return lease_; }
  [[nodiscard]] const stopwatch& copy() const noexcept { return copy_; }
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_.value(); }
  [[nodiscard]] std::uint64_t samples() const noexcept { return samples_.value(); }
  /// The bytes of their ragged fields.
  [[nodiscard]] std::uint64_t value_bytes() const noexcept { return values_.value(); }
  /// How often it has looked for what comes after, and the sum of what it saw.
  [[nodiscard]] std::uint64_t looks() const noexcept { return looks_.value(); }
  [[nodiscard]] std::uint64_t depths() const noexcept { return depths_.value(); }

 private:
  const Clock* clock_;
  trace_writer* trace_ = nullptr;
  std::shared_ptr<trace_writer> kept_trace_;
  tally batches_;
  tally samples_;
  tally values_;
  tally looks_;
  tally depths_;
  stopwatch range_;
  stopwatch batch_;
  stopwatch lease_;
  stopwatch copy_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
