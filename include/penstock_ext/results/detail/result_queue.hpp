// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The monitor of `results`, which assigns slots to the loop and the workers. The loop takes a free
/// device slot and submits it. A worker queues the copies of all submitted slots into free host
/// slots. A worker waits for the end of a copy, frees the device slots of all copies that have
/// ended by then, and calls the consumer. The end of the lease frees the host slot. Each batch
/// takes the single lock a few times, for a few stores each. A thread that holds the lock calls
/// neither the device nor the program.
///
/// Invariant: each device slot is in exactly one state: free, taken by the loop, submitted, in
/// `copying_`, or with its host slot in `arriving_` or at a worker until the copy is known to have
/// ended. Each host slot is free, in `copying_`, in `arriving_`, or leased. A single worker at a
/// time queues copies, in the order of `submit`. Deliveries begin in that order.
class result_queue {
 public:
  enum class step { copy, deliver, stuck, end };
  /// The next task of a worker, and its slots. A task to copy has the first slot of `copying`.
  struct job {
    step what = step::end;
    std::uint32_t device_slot = 0;
    std::uint32_t host_slot = 0;
    std::uint64_t end = 0;     // a point of the copy stream, which ends the copy
    bool has_arrived = false;  // the copy has ended, and the device slot is not the job's any more
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
    copying_.reserve(device_slots);
    arriving_.reserve(host_slots);
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
    nappers_.notify_one();
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
      if (can_copy()) return begin_copies();
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
  /// Waits for `limit` at most, until there are copies to queue. Returns true if the worker must
  /// queue the copies of `copying`. A worker calls this while it waits for a copy.
  [[nodiscard]] bool wait_for_copies(std::chrono::microseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    std::unique_lock lock{mutex_};
    // A missed notification costs no more than `limit`.
    if (!can_copy()) nappers_.wait_until(lock, end);
    if (!can_copy()) return false;
    begin_copies();
    return true;
  }
  /// Returns the copies to queue. The worker sets the end of each copy. Only the worker that got
  /// `copy` may call this, until `record_copies`.
  [[nodiscard]] std::span<job> copying() noexcept { return copying_; }
  /// Records that the copies returned by `copying` are queued. The ends of the copies must be in
  /// ascending order.
  void record_copies() noexcept {
    const std::lock_guard lock{mutex_};
    arriving_.insert(arriving_.end(), copying_.begin(), copying_.end());  // has room
    copying_.clear();
    workers_.notify_all();
  }
  /// Records that the copy stream has finished the copy `arrived`. Frees the device slots of this
  /// copy and of all earlier copies.
  void record_arrival(const job& arrived) noexcept {
    if (arrived.has_arrived) return;
    const std::lock_guard lock{mutex_};
    free_.push_back(arrived.device_slot);
    for (job& other : arriving_) {
      if (other.end > arrived.end) break;
      if (!std::exchange(other.has_arrived, true)) free_.push_back(other.device_slot);
    }
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
  [[nodiscard]] bool can_copy() const noexcept {
    return !has_failed_ && copying_.empty() && !handed_.empty() && !free_host_.empty();
  }
  job begin_copies() noexcept {
    while (!handed_.empty() && !free_host_.empty()) {
      copying_.push_back({step::deliver, pop(handed_), pop(free_host_)});
    }
    return {step::copy, copying_.front().device_slot};
  }
  [[nodiscard]] bool is_idle_but_consuming() const noexcept {
    return handed_.empty() && arriving_.empty() && copying_.empty();
  }
  [[nodiscard]] bool is_idle() const noexcept { return is_idle_but_consuming() && consuming_ == 0; }
  /// Returns true if progress needs the end of a lease that a consumer has kept.
  [[nodiscard]] bool is_stuck() const noexcept {
    return !handed_.empty() && free_host_.empty() && arriving_.empty() && copying_.empty() &&
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
  std::condition_variable nappers_;       // workers in `wait_for_copies`
  std::size_t taken_ = 0;                 // device slots that the loop holds, or that are lost
  std::vector<std::uint32_t> free_;       // device slots
  std::vector<std::uint32_t> free_host_;  // host slots
  std::vector<std::uint32_t> handed_;     // device slots whose copy is not queued
  std::vector<job> copying_;              // slots whose copy is being queued, see `copying`
  std::vector<job> arriving_;             // slots whose copy is queued
  std::size_t consuming_ = 0;             // workers that deliver
  bool is_closed_ = false;
  bool has_failed_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
