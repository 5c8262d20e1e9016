// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What the consumers of a `batcher` wait on: asleep, until they are notified or a moment has come.
/// A sleep ends late, by how long a core takes to wake up. So one of them is awake for the last
/// `spin` before the moment, and looks at the clock.
///
/// All members are called under one mutex of the caller's, which a wait gives up. A wait may end
/// without a reason: the caller looks again at what it waits for.
template <class Clock = std::chrono::steady_clock>
class consumer_signal {
 public:
  using moment = typename Clock::time_point;
  using lock_type = std::unique_lock<std::mutex>;

  /// One consumer at a time spins so long; 0: all of them sleep.
  explicit consumer_signal(std::chrono::nanoseconds spin) noexcept : spin_(spin) {}

  void notify_one() noexcept {
    note();
    changed_.notify_one();  // whether a thread spins or not: it may be on its way to another batch
  }
  void notify_all() noexcept {
    note();
    changed_.notify_all();
  }

  /// Waits for a notification.
  void wait(lock_type& lock) { changed_.wait(lock); }
  /// Waits for a notification, or until `due` at most.
  void wait_until(lock_type& lock, moment due) {
    if (spin_.count() == 0 || spins_) {
      changed_.wait_until(lock, due);
    } else if (const moment awake = due - spin_; Clock::now() < awake) {
      changed_.wait_until(lock, awake);
    } else {
      spin_until(lock, due);
    }
  }

 private:
  void note() noexcept {
    notified_.store(notified_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void spin_until(lock_type& lock, moment due) {
    const std::uint32_t seen = notified_.load(std::memory_order_relaxed);
    spins_ = true;
    lock.unlock();
    while (notified_.load(std::memory_order_relaxed) == seen && Clock::now() < due) {
      std_atomics::pause();
    }
    lock.lock();
    spins_ = false;
  }

  std::condition_variable changed_;
  const std::chrono::nanoseconds spin_;
  bool spins_ = false;  // a thread does
  // Counts notifications. Written under the mutex alone. A thread that spins reads it as a hint to
  // look again: it looks under the mutex, and at `due` in any case, so that no order is needed.
  std::atomic<std::uint32_t> notified_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
