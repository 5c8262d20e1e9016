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

/// A signal on which the consumers of an intake sleep until they are notified or a time point is
/// reached. Because a sleeping thread wakes up late, one consumer spins on the clock during the
/// last `spin` before that time.
///
/// The caller holds the same mutex at the start of all calls. A wait releases the mutex until it
/// ends. Wake-ups may be spurious, so the caller must check its condition again.
template <class Clock = std::chrono::steady_clock>
class consumer_signal {
 public:
  using moment = typename Clock::time_point;
  using lock_type = std::unique_lock<std::mutex>;

  /// Lets one consumer at a time spin for `spin`. If `spin` is 0, all consumers sleep.
  explicit consumer_signal(std::chrono::nanoseconds spin) noexcept : spin_(spin) {}

  /// Releases the mutex, and then notifies one consumer.
  void notify_one(lock_type& lock) noexcept {
    count_notification();
    lock.unlock();
    changed_.notify_one();  // even if a thread spins, which may be about to take another batch
  }
  void notify_all() noexcept {
    count_notification();
    changed_.notify_all();
  }

  /// Waits for a notification.
  void wait(lock_type& lock) { changed_.wait(lock); }
  /// Waits for a notification until `due` at the latest.
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
  void count_notification() noexcept {
    notified_.store(notified_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void spin_until(lock_type& lock, moment due) {
    const std::uint32_t before = notified_.load(std::memory_order_relaxed);
    spins_ = true;
    lock.unlock();
    while (notified_.load(std::memory_order_relaxed) == before && Clock::now() < due) {
      std_atomics::pause();
    }
    lock.lock();
    spins_ = false;
  }

  std::condition_variable changed_;
  const std::chrono::nanoseconds spin_;
  bool spins_ = false;  // true while a thread spins
  // Counts notifications. Written only under the mutex. Relaxed ordering suffices, because a
  // spinning thread uses the count only as a hint to check again under the mutex, and always checks
  // at `due`.
  std::atomic<std::uint32_t> notified_{0};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
