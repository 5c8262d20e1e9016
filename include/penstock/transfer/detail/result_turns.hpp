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

/// Whose turn it is in `results`: the loop takes a free device slot and hands it in; a worker
/// queues its copy into a free host slot; a worker waits for the copy, which frees the device slot,
/// and has the batch consumed; the end of the lease frees the host slot. A monitor: one lock, held
/// for a few stores and never across a call of the device or of the program, a few times a batch.
///
/// Invariant: each device slot is in one place: free, taken by the loop, handed in, being copied,
/// or in `arriving_` with its host slot, until a worker has waited for the copy. Each host slot is
/// free, being copied to, in `arriving_`, or a lease. Copies are queued by one worker at a time, in
/// the order of `hand_in`, and deliveries begin in that order.
class result_turns {
 public:
  enum class step { copy, deliver, stuck, end };
  /// What a worker does next, with which slots.
  struct job {
    step what = step::end;
    std::uint32_t device_slot = 0;
    std::uint32_t host_slot = 0;
  };
  enum class outcome { slot, failed, closed, stopped, all_taken, held };
  /// What the loop gets.
  struct taken {
    outcome what = outcome::closed;
    std::uint32_t slot = 0;
    std::chrono::nanoseconds waited{0};
  };

  /// So many slots, all free.
  result_turns(std::size_t device_slots, std::size_t host_slots) : device_slots_(device_slots) {
    fill(free_, device_slots);
    fill(free_host_, host_slots);
    handed_.reserve(device_slots);
    arriving_.reserve(device_slots);
  }
  result_turns(result_turns&&) = delete;

  /// @name The loop
  /// @{

  /// Waits for a free device slot; ends early after a failure, after `close`, once `is_stopped()`
  /// (`wake` has it asked again), where the loop has taken all slots itself, and, unless
  /// `may_wait_for_leases`, where only the end of a lease that its consumer has kept can free one.
  template <class IsStopped>
  [[nodiscard]] taken take(const IsStopped& is_stopped, bool may_wait_for_leases) {
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
  /// A taken slot holds results: they leave it. False, and the slot is free, after a failure or
  /// `close`, when nobody would consume them.
  bool hand_in(std::uint32_t slot) noexcept {
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
  /// A taken slot is free again, and nothing leaves it.
  void put_back(std::uint32_t slot) noexcept {
    const std::lock_guard lock{mutex_};
    --taken_;
    free_.push_back(slot);
    loop_.notify_all();
  }
  /// Waits until all that was handed in is consumed, or something has failed. False where only the
  /// end of a lease that its consumer has kept would help, once `gives_up()` (`wake` has it asked
  /// again).
  template <class GivesUp>
  bool finish(const GivesUp& gives_up) {
    std::unique_lock lock{mutex_};
    while (!has_failed_ && !is_idle()) {
      if (is_stuck() && gives_up()) return false;
      loop_.wait(lock);
    }
    return true;
  }
  /// Has a loop that waits ask `is_stopped` or `gives_up` again. From any thread.
  void wake() noexcept {
    const std::lock_guard lock{mutex_};
    loop_.notify_all();
  }
  /// @}

  /// Nothing is taken nor handed in from now on; workers end when all is consumed. From any thread.
  void close() noexcept {
    const std::lock_guard lock{mutex_};
    is_closed_ = true;
    wake_all();
  }
  /// Nothing is copied nor consumed any more. From any thread.
  void fail() noexcept {
    const std::lock_guard lock{mutex_};
    has_failed_ = true;
    wake_all();
  }

  /// @name A worker
  /// @{

  /// Waits for something to do.
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
  /// The copy of `queued` is on its way.
  void note_copy(job queued) noexcept {
    const std::lock_guard lock{mutex_};
    is_copying_ = false;
    queued.what = step::deliver;
    arriving_.push_back(queued);
    // Now there may be two things to do, a copy and a delivery, and this thread does one of them.
    workers_.notify_one();
  }
  /// The copy out of a device slot is complete.
  void note_arrival(std::uint32_t slot) noexcept {
    const std::lock_guard lock{mutex_};
    free_.push_back(slot);
    loop_.notify_all();
  }
  /// The consumer has returned.
  void note_consumed() noexcept {
    const std::lock_guard lock{mutex_};
    --consuming_;
    if (is_closed_) workers_.notify_all();
    if (is_idle() || is_stuck()) loop_.notify_all();
  }
  /// @}

  /// The lease of a host slot has ended. From any thread.
  void note_release(std::uint32_t slot) noexcept {
    const std::lock_guard lock{mutex_};
    free_host_.push_back(slot);
    workers_.notify_one();
  }

 private:
  static void fill(std::vector<std::uint32_t>& list, std::size_t count) {
    list.resize(count);
    for (std::size_t i = 0; i < count; ++i) list[i] = static_cast<std::uint32_t>(i);
  }
  // The oldest. There are a handful.
  static std::uint32_t pop(std::vector<std::uint32_t>& list) noexcept {
    const std::uint32_t first = list.front();
    list.erase(list.begin());
    return first;
  }
  [[nodiscard]] bool is_idle_but_consuming() const noexcept {
    return handed_.empty() && arriving_.empty() && !is_copying_;
  }
  [[nodiscard]] bool is_idle() const noexcept { return is_idle_but_consuming() && consuming_ == 0; }
  /// Whether only the end of a lease that a consumer has kept would let anything go on.
  [[nodiscard]] bool is_stuck() const noexcept {
    return !handed_.empty() && free_host_.empty() && arriving_.empty() && !is_copying_ &&
           consuming_ == 0;
  }
  void wake_all() noexcept {
    workers_.notify_all();
    loop_.notify_all();
  }

  const std::size_t device_slots_;
  std::mutex mutex_;  // guards all below
  std::condition_variable loop_;
  std::condition_variable workers_;
  std::size_t taken_ = 0;                 // device slots that the loop has, or that are lost
  std::vector<std::uint32_t> free_;       // device slots
  std::vector<std::uint32_t> free_host_;  // host slots
  std::vector<std::uint32_t> handed_;     // device slots whose copy is not queued yet
  std::vector<job> arriving_;             // whose copy is
  std::size_t consuming_ = 0;             // workers that have taken one of those
  bool is_copying_ = false;               // a worker queues a copy
  bool is_closed_ = false;
  bool has_failed_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
