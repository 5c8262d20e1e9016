// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

/// Atomics for `basic_waitable_counter` and its users that let a test observe how a thread waits. A
/// thread that `sleeps` counts is asleep until it is woken. Only one test at a time may use these
/// atomics, and the test must call `reset` first.
struct sleepy_atomics {
  static inline std::atomic<std::uint32_t> pauses{0};
  static inline std::atomic<std::uint32_t> yields{0};
  static inline std::atomic<std::uint32_t> sleeps{0};
  static inline std::atomic<std::uint32_t> wakes{0};

  template <class T>
  class atomic : public std::atomic<T> {
   public:
    using std::atomic<T>::atomic;

    void wait(T old, std::memory_order order) const noexcept {
      std::unique_lock lock{mutex_};
      if (this->load(order) != old) return;
      const std::uint64_t ticket = asleep_++;
      ++sleeps;
      signal_.wait(lock, [&] { return ticket < woken_; });
    }
    bool wait_until(T old, std::memory_order order, penstock::detail::deadline end) const noexcept {
      std::unique_lock lock{mutex_};
      if (this->load(order) != old) return true;
      const std::uint64_t ticket = asleep_++;
      ++sleeps;
      return signal_.wait_until(lock, end, [&] { return ticket < woken_; });
    }
    /// Wakes threads in the order in which they fell asleep.
    void notify(std::uint64_t count) noexcept {
      if (count == 0) return;
      {
        const std::lock_guard lock{mutex_};
        woken_ += std::min(count, asleep_ - woken_);
      }
      ++wakes;
      signal_.notify_all();
    }
    void notify_all() noexcept { notify(~std::uint64_t{0}); }

   private:
    mutable std::mutex mutex_;
    mutable std::condition_variable signal_;
    mutable std::uint64_t asleep_ = 0;  // number of threads that have fallen asleep
    std::uint64_t woken_ = 0;           // number of those threads that were woken
  };

  using word = atomic<std::uint32_t>;

  static void pause() noexcept { ++pauses; }
  static void yield() noexcept {
    ++yields;
    std::this_thread::yield();
  }
  static void fence() noexcept { penstock::detail::std_atomics::fence(); }
  static void reset() {
    pauses = 0;
    yields = 0;
    sleeps = 0;
    wakes = 0;
  }
  /// Waits until `count` threads have fallen asleep since `reset`.
  static void wait_for_sleeps(std::uint32_t count) {
    while (sleeps < count) std::this_thread::yield();
  }
};
