// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The monitor of `results`, which assigns slots to the loop and the workers. The loop takes a free
/// device slot and submits it. A worker queues the copy of the slot into a free host slot. A worker
/// waits for the copy, frees the device slot, and calls the consumer. The end of the lease frees
/// the host slot. Each batch takes the single lock a few times, for a few stores each. A thread
/// that holds the lock calls neither the device nor the program.
///
/// Invariant: each device slot is in exactly one state: free, taken by the loop, submitted, being
/// copied, or in `arriving_` with its host slot until a worker has waited for the copy. Each host
/// slot is free, being copied to, in `arriving_`, or leased. A single worker at a time queues
/// copies, in the order of `submit`. Deliveries begin in that order.
class result_queue {
 public:
  enum class step { copy, deliver, stuck, end };
  /// The next task of a worker, and its slots.
  struct job {
    step what = step::end;
    std::uint32_t device_slot = 0;
    std::uint32_t host_slot = 0;
  };
  enum class outcome { slot, failed, closed, stopped, all_taken, held };
  /// The result of `acquire`.
  struct taken {
    outcome what = outcome::closed;
    std::uint32_t slot = 0;
    std::chrono::nanoseconds waited{0};
  };

  /// Makes a monitor for these numbers of slots, all free.
  result_queue(std::size_t device_slots, std::size_t host_slots) : device_slots_(device_slots) {
    fill(free_, device_slots);
    fill(free_host_, host_slots);
    handed_.reserve(device_slots);
    arriving_.reserve(device_slots);
  }
  result_queue(result_queue&&) = delete;

  /// @name The loop
  /// @{

  /// Waits for a free device slot. The wait ends early after a failure, after `close`, if
  /// `is_stopped()` is true (`wake` triggers a new check), or if the loop has taken all slots
  /// itself. Unless `may_wait_for_leases`, the wait also ends early if a slot can only become free
  /// when a consumer ends a lease that it has kept.
  template <class IsStopped>
  [[nodiscard]] taken acquire(const IsStopped& is_stopped, bool may_wait_for_leases) {
    std::unique_lock lock{mutex_};
    const auto now = [&] {
      if (has_failed_) return outcome::failed;
      if (is_closed_) return outcome::closed;
      if (!free_.empty()) return outcome::slot;
      if (is_stopped()) return outcome::stopped;
      if (taken_ == device_slots_) return outcome::all_taken;
      return outcome::held;
    };
    const auto is_over = [&] {
      return now() != outcome::held || (!may_wait_for_leases && is_stuck());
    };
    taken result;
    if (!is_over()) {
      const auto begin = std::chrono::steady_clock::now();
      while (!is_over()) loop_.wait(lock);
      result.waited = std::chrono::steady_clock::now() - begin;
    }
    result.what = now();
    if (result.what == outcome::slot) {
      result.slot = pop(free_);
      ++taken_;
    }
    return result;
  }
  /// Submits a taken slot that holds results. After a failure or `close`, no worker would consume
  /// them, so the function frees the slot and returns false.
  bool submit(std::uint32_t slot) noexcept {
    const std::lock_guard lock{mutex_};
    --taken_;
    if (has_failed_ || is_closed_) {
      free_.push_back(slot);
      return false;
    }
    handed_.push_back(slot);
    workers_.notify_one();
    return true;
  }
  /// Frees a taken slot without results.
  void put_back(std::uint32_t slot) noexcept {
    const std::lock_guard lock{mutex_};
    --taken_;
    free_.push_back(slot);
    loop_.notify_all();
  }
  /// Waits until all submitted results are consumed, or until a failure. Returns false if progress
  /// needs the end of a lease that its consumer has kept, and `gives_up()` is true (`wake` triggers
  /// a new check).
  template <class GivesUp>
  bool finish(const GivesUp& gives_up) {
    std::unique_lock lock{mutex_};
    while (!has_failed_ && !is_idle()) {
      if (is_stuck() && gives_up()) return false;
      loop_.wait(lock);
    }
    return true;
  }
  /// Makes a waiting loop check `is_stopped` or `gives_up` again. Any thread may call this.
  void wake() noexcept {
    const std::lock_guard lock{mutex_};
    loop_.notify_all();
  }
  /// @}

  /// Rejects all later calls of `acquire` and `submit`. Workers end when all results are consumed.
  /// Any thread may call this.
  void close() noexcept {
    const std::lock_guard lock{mutex_};
    is_closed_ = true;
    wake_all();
  }
  /// Ends all copying and consuming. Any thread may call this.
  void fail() noexcept {
    const std::lock_guard lock{mutex_};
    has_failed_ = true;
    wake_all();
  }

  /// @name A worker
  /// @{

  /// Waits for the next task.
  [[nodiscard]] job next() {
    std::unique_lock lock{mutex_};
    for (;;) {
      if (has_failed_) return {};
      if (!is_copying_ && !handed_.empty() && !free_host_.empty()) {
        is_copying_ = true;
        return {step::copy, pop(handed_), pop(free_host_)};
      }
      if (!arriving_.empty()) {
        const job first = arriving_.front();
        arriving_.erase(arriving_.begin());
        ++consuming_;
        return first;
      }
      if (is_closed_ && is_idle_but_consuming()) return {};
      if (is_closed_ && is_stuck()) return {step::stuck, handed_.front(), 0};
      workers_.wait(lock);
    }
  }
  /// Records that the copy of `queued` is queued.
  void record_copy(job queued) noexcept {
    const std::lock_guard lock{mutex_};
    is_copying_ = false;
    queued.what = step::deliver;
    arriving_.push_back(queued);
    // There may be two tasks now, a copy and a delivery, but this thread takes only one of them.
    workers_.notify_one();
  }
  /// Records that the copy out of a device slot is complete, and frees the slot.
  void record_arrival(std::uint32_t slot) noexcept {
    const std::lock_guard lock{mutex_};
    free_.push_back(slot);
    loop_.notify_all();
  }
  /// Records that the consumer has returned.
  void record_consumed() noexcept {
    const std::lock_guard lock{mutex_};
    --consuming_;
    if (is_closed_) workers_.notify_all();
    if (is_idle() || is_stuck()) loop_.notify_all();
  }
  /// @}

  /// Frees a host slot whose lease has ended. Any thread may call this.
  void on_release(std::uint32_t slot) noexcept {
    const std::lock_guard lock{mutex_};
    free_host_.push_back(slot);
    workers_.notify_one();
  }

 private:
  static void fill(std::vector<std::uint32_t>& list, std::size_t count) {
    list.resize(count);
    for (std::size_t i = 0; i < count; ++i) list[i] = static_cast<std::uint32_t>(i);
  }
  // Removes the oldest slot. The lists are short.
  static std::uint32_t pop(std::vector<std::uint32_t>& list) noexcept {
    const std::uint32_t first = list.front();
    list.erase(list.begin());
    return first;
  }
  [[nodiscard]] bool is_idle_but_consuming() const noexcept {
    return handed_.empty() && arriving_.empty() && !is_copying_;
  }
  [[nodiscard]] bool is_idle() const noexcept { return is_idle_but_consuming() && consuming_ == 0; }
  /// Returns true if progress needs the end of a lease that a consumer has kept.
  [[nodiscard]] bool is_stuck() const noexcept {
    return !handed_.empty() && free_host_.empty() && arriving_.empty() && !is_copying_ &&
           consuming_ == 0;
  }
  void wake_all() noexcept {
    workers_.notify_all();
    loop_.notify_all();
  }

  const std::size_t device_slots_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable loop_;
  std::condition_variable workers_;
  std::size_t taken_ = 0;                 // device slots that the loop holds, or that are lost
  std::vector<std::uint32_t> free_;       // device slots
  std::vector<std::uint32_t> free_host_;  // host slots
  std::vector<std::uint32_t> handed_;     // device slots whose copy is not queued
  std::vector<job> arriving_;             // slots whose copy is queued
  std::size_t consuming_ = 0;             // workers that deliver
  bool is_copying_ = false;               // a worker queues a copy
  bool is_closed_ = false;
  bool has_failed_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
