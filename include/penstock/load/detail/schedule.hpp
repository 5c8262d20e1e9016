// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>

#include <penstock/core/batch_info.hpp>
#include <penstock/load/detail/plan.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Which batch is read next, and which ones are no longer wanted. The consumer says which batches
/// are wanted (`begin`, `cancel`). The opener, one thread at a time, waits until one is
/// (`wait_until_wanted`) and binds it to a slot (`bind`). Batches are numbered over the life of the
/// schedule.
class schedule {
 public:
  /// The next batch to bind.
  struct place {
    std::uint64_t range = 0;   ///< counts calls of `begin`
    std::uint64_t number = 0;  ///< the batches bound so far
    batch_position at;
  };

  explicit schedule(const epoch_plan& plan) noexcept : plan_(plan) {}

  /// How epochs are cut into batches.
  [[nodiscard]] const epoch_plan& plan() const noexcept { return plan_; }

  /// Consumer: the batches from `first` to the start of epoch `last_epoch` are wanted. Returns the
  /// number of the batch after them. Throws `option_error`, see `epoch_plan::count`.
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

  /// Consumer: no batch is wanted any more. Returns the number after the last one that was bound.
  std::uint64_t cancel() noexcept {
    std::uint64_t bound = 0;
    {
      const std::lock_guard lock{mutex_};
      bound = end_ = next_.number;
    }
    cancelled_.value.store(bound, std::memory_order_release);
    return bound;
  }
  /// Whether batch `number` was bound, and cancelled then. From any thread.
  [[nodiscard]] bool is_cancelled(std::uint64_t number) const noexcept {
    return number < cancelled_.value.load(std::memory_order_acquire);
  }

  /// Consumer: only batches with a number below `limit` may be bound, at first all. Wakes a waiting
  /// opener, or leaves that to a later call or to `wake`.
  void allow(std::uint64_t limit, bool wakes) noexcept {
    allowed_.store(limit, std::memory_order_release);
    demand_.advance_quietly();
    if (wakes) demand_.wake();
  }

  /// Opener: waits until a batch is wanted, and allowed, and returns it; `std::nullopt` when `stop`
  /// was requested, after `wake`. `waits` times the wait.
  template <class Waits = unobserved>
  [[nodiscard]] std::optional<place> wait_until_wanted(const std::stop_token& stop,
                                                       Waits&& waits = {}) const noexcept {
    [[maybe_unused]] const stage_mark mark{marked_stage::wait_for_demand};
    for (;;) {
      const std::uint32_t seen = demand_.load();
      if (stop.stop_requested()) return std::nullopt;
      const auto wanted = next();
      if (wanted && wanted->number < allowed_.load(std::memory_order_acquire)) return wanted;
      [[maybe_unused]] const auto timed = wanted ? waits.for_slot() : waits.for_demand();
      demand_.wait([seen](std::uint32_t now) { return now != seen; });
    }
  }
  /// Has a waiting opener look at its stop token.
  void wake() noexcept { demand_.advance(); }

  /// The batches that are wanted and not bound yet.
  struct coming {
    place next;               ///< the first of them,
    std::uint64_t first = 0;  ///< the number of the range's first batch,
    batch_position first_at;  ///< which this is,
    std::uint64_t end = 0;    ///< and the number after the last
  };
  /// What comes; `std::nullopt` when no batch is wanted. From any thread.
  [[nodiscard]] std::optional<coming> upcoming() const noexcept {
    const std::lock_guard lock{mutex_};
    if (next_.number == end_) return std::nullopt;
    return coming{next_, first_, first_at_, end_};
  }

  /// Opener: the next batch to bind; `std::nullopt` when none is wanted.
  [[nodiscard]] std::optional<place> next() const noexcept {
    const std::lock_guard lock{mutex_};
    if (next_.number == end_) return std::nullopt;
    return next_;
  }
  /// Opener: binds what `next` returned; false when its range has ended meanwhile.
  [[nodiscard]] bool bind(const place& which) noexcept {
    const std::lock_guard lock{mutex_};
    if (next_.number == end_ || next_.range != which.range) return false;
    next_ = {which.range, which.number + 1, plan_.normal({which.at.epoch, which.at.batch + 1})};
    return true;
  }

 private:
  epoch_plan plan_;  // read for each chunk

  // Guards the four below; no code of the user's runs under it. Locked for each batch, so on
  // another cache line than the plan.
  alignas(cache_line) mutable std::mutex mutex_;
  std::uint64_t end_ = 0;    // batches wanted so far
  std::uint64_t first_ = 0;  // what was bound when the range began
  batch_position first_at_;  // where it did
  place next_;               // its number counts what is bound

  waitable_counter demand_;  // moves when more batches are wanted, or allowed
  // Invariant: written before a step of demand_, so that an opener that reads the number of before
  // does not sleep through it.
  std::atomic<std::uint64_t> allowed_{(std::numeric_limits<std::uint64_t>::max)()};
  // Batches below it are not read any more. Every worker reads it for each chunk, so it does not
  // share a cache line with what the opener or the consumer writes for each batch.
  own_line<std::atomic<std::uint64_t>> cancelled_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
