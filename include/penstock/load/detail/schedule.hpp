// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>

#include <penstock/core/batch_info.hpp>
#include <penstock/load/support/plan.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The schedule of the batches: the next batch to read, and the batches that are no longer wanted.
/// The consumer specifies the wanted batches (`begin`, `cancel`). The opener, one thread at a time,
/// waits until a batch is wanted (`wait_until_wanted`) and binds it to a slot (`bind`). Batch
/// numbers increase over the lifetime of the schedule.
class schedule {
 public:
  /// The next batch to bind.
  struct place {
    std::uint64_t range = 0;   ///< number of calls to `begin`
    std::uint64_t number = 0;  ///< number of batches bound so far
    batch_position at;
  };

  explicit schedule(const epoch_plan& plan) noexcept : plan_(plan) {}

  /// Returns the plan that divides epochs into batches.
  [[nodiscard]] const epoch_plan& plan() const noexcept { return plan_; }

  /// Requests the batches from `first` to the start of epoch `last_epoch`. Returns the number after
  /// the last of these batches. Throws `option_error` (see `epoch_plan::count`). Called by the
  /// consumer.
  std::uint64_t begin(const batch_position& first, std::uint64_t last_epoch) {
    const std::uint64_t count = plan_.count(first, last_epoch);
    std::uint64_t end = 0;
    {
      const std::lock_guard lock{mutex_};
      ++next_.range;
      first_ = next_.number;
      next_.at = first_at_ = first;
      end = end_ += count;
    }
    demand_.advance();
    return end;
  }

  /// Cancels all batches. Returns the number after the last batch that was bound. Called by the
  /// consumer.
  std::uint64_t cancel() noexcept {
    std::uint64_t bound = 0;
    {
      const std::lock_guard lock{mutex_};
      bound = end_ = next_.number;
    }
    cancelled_.value.store(bound, std::memory_order_release);
    return bound;
  }
  /// Returns true if batch `number` was bound and then cancelled. Any thread may call this.
  [[nodiscard]] bool is_cancelled(std::uint64_t number) const noexcept {
    return number < cancelled_.value.load(std::memory_order_acquire);
  }

  /// Allows only batches with a number below `limit` to be bound. All batches are allowed before
  /// the first call. If `wakes` is true, wakes a waiting opener. Otherwise a later call or `wake`
  /// wakes the opener. Called by the consumer.
  void allow(std::uint64_t limit, bool wakes) noexcept {
    allowed_.store(limit, std::memory_order_release);
    demand_.advance_quietly();
    if (wakes) demand_.wake();
  }

  /// Waits until a batch is wanted and allowed, and returns it. Returns `std::nullopt` after a stop
  /// was requested through `stop` and `wake` was called. `waits` times the wait. Called by the
  /// opener.
  template <class Waits = unobserved>
  [[nodiscard]] std::optional<place> wait_until_wanted(const std::stop_token& stop,
                                                       Waits&& waits = {}) const noexcept {
    for (;;) {
      const std::uint32_t before = demand_.load();
      if (stop.stop_requested()) return std::nullopt;
      const auto wanted = next();
      if (wanted && wanted->number < allowed_.load(std::memory_order_acquire)) return wanted;
      [[maybe_unused]] const auto timed = wanted ? waits.for_slot() : waits.for_demand();
      demand_.wait([before](std::uint32_t now) { return now != before; });
    }
  }
  /// Makes a waiting opener check its stop token.
  void wake() noexcept { demand_.advance(); }

  /// The batches that are wanted but not bound to a slot yet.
  struct coming {
    place next;               ///< first wanted batch
    std::uint64_t first = 0;  ///< number of the first batch in the range
    batch_position first_at;  ///< position of the first batch in the range
    std::uint64_t end = 0;    ///< number after the last batch in the range
  };
  /// Returns the wanted batches that are not bound yet, or `std::nullopt` if no batch is wanted.
  /// Any thread may call this.
  [[nodiscard]] std::optional<coming> upcoming() const noexcept {
    const std::lock_guard lock{mutex_};
    if (next_.number == end_) return std::nullopt;
    return coming{next_, first_, first_at_, end_};
  }

  /// Returns the next batch to bind, or `std::nullopt` if no batch is wanted. Called by the opener.
  [[nodiscard]] std::optional<place> next() const noexcept {
    const std::lock_guard lock{mutex_};
    if (next_.number == end_) return std::nullopt;
    return next_;
  }
  /// Binds a batch returned by `next`. Returns false if its range has ended since then. Called by
  /// the opener.
  [[nodiscard]] bool bind(const place& which) noexcept {
    const std::lock_guard lock{mutex_};
    if (next_.number == end_ || next_.range != which.range) return false;
    next_ = {which.range, which.number + 1, plan_.normal({which.at.epoch, which.at.batch + 1})};
    return true;
  }

 private:
  epoch_plan plan_;  // read for each chunk

  // Guards the four members below. User code does not run while this mutex is locked. Every batch
  // locks the mutex, so it is on a different cache line than the plan.
  alignas(cache_line) mutable std::mutex mutex_;
  std::uint64_t end_ = 0;    // number of batches wanted so far
  std::uint64_t first_ = 0;  // number of batches bound when the range began
  batch_position first_at_;  // position of the first batch in the range
  place next_;               // `next_.number` counts the bound batches

  waitable_counter demand_;  // advances when more batches are wanted or allowed
  // Invariant: written before `demand_` advances, so that an opener that reads the old number does
  // not sleep through the change.
  std::atomic<std::uint64_t> allowed_{(std::numeric_limits<std::uint64_t>::max)()};
  // Batches below this number are no longer read. Every worker reads the number for each chunk, so
  // it does not share a cache line with data that the opener or the consumer writes for each batch.
  own_line<std::atomic<std::uint64_t>> cancelled_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
