// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The default fences of an eventcount: a full fence in both the notifying and the waiting thread.
/// The names follow asymmetric fences (P1202). The frequent side, which has made a change, uses a
/// light fence, and the rare side, which is about to sleep, uses a heavy fence. If two threads each
/// write and then read, with `light` in between in one thread and `heavy` in the other, at least
/// one of them sees the other's write.
template <class Atomics>
struct symmetric_fences {
  static void light() noexcept { Atomics::fence(); }
  static void heavy() noexcept { Atomics::fence(); }
};

/// An eventcount, on which threads wait for an arbitrary condition, such as a ticket in a queue. A
/// thread that changes the condition then calls `notify`. While no thread sleeps, `notify` costs a
/// light fence. Otherwise one system call wakes all sleeping threads.
template <class Atomics = std_atomics, class Fences = symmetric_fences<Atomics>>
class basic_eventcount {
 public:
  /// Wakes all sleeping threads, so that they check the condition again. Must be called after each
  /// change that a thread may wait for.
  void notify() noexcept {
    announce();
    wake();
  }

  /// Announces a change, as the first half of `notify`. Sleeping threads continue to sleep until a
  /// thread calls `wake`. Waiting threads that are awake see the change.
  void announce() noexcept { fences_.light(); }

  /// Wakes all sleeping threads, as the second half of `notify`, for all changes announced by any
  /// thread.
  void wake() noexcept {
    // Loads the value before exchanging it, because the value is usually 0, and a load keeps the
    // cache line shared.
    if (has_sleepers_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wake_sleepers();
  }

  /// Waits until `look()` returns true. The caller has already checked the condition, so the wait
  /// starts with `pauses` spin pauses, at least 1. Doubles the number of pauses before each further
  /// check, because a check takes cache lines from the thread that is about to make the condition
  /// true. Pass fewer pauses if the condition is likely to change soon.
  template <class Look>
  void wait(Look look, int pauses = default_pauses) noexcept {
    (void)wait_by(look, pauses, [this](std::uint32_t before) {
      epoch_.wait(before, std::memory_order_acquire);
      return true;
    });
  }

  /// Like `wait`, but gives up at `end`. Returns false if `look()` still returned false at that
  /// time. Giving up does not consume another waiter's wake-up, because a wake-up wakes all
  /// sleeping threads.
  template <class Look, class Deadline>
  [[nodiscard]] bool wait_until(Look look, Deadline end, int pauses = default_pauses) noexcept {
    return wait_by(look, pauses, [this, end](std::uint32_t before) {
      return epoch_.wait_until(before, std::memory_order_acquire, end);
    });
  }

 private:
  // `sleep(before)` returns true when the epoch is not `before`, or false if it timed out.
  template <class Look, class Sleep>
  bool wait_by(Look& look, int pauses, Sleep sleep) noexcept {
    for (; pauses <= max_pauses; pauses *= 2) {
      for (int pause = 0; pause < pauses; ++pause) Atomics::pause();
      if (look()) return true;
    }
    for (int turn = 0; turn < yields; ++turn) {
      Atomics::yield();
      if (look()) return true;
    }
    for (;;) {
      // Invariant: a sleeping thread sets `has_sleepers_` and then checks the condition. A
      // notifying thread makes its change and then reads `has_sleepers_`. Each executes a fence
      // between the two steps, and one of the fences is first. If the notifier's fence is first,
      // this check finds the change. If the sleeper's fence is first, the thread that calls `wake`
      // reads 1, or reads 0 because another thread has reset the 1 and advances the epoch. `before`
      // was loaded before `has_sleepers_` was set, so the new epoch ends the sleep.
      const std::uint32_t before = epoch_.load(std::memory_order_relaxed);
      has_sleepers_.exchange(1, std::memory_order_seq_cst);
      fences_.heavy();
      if (look()) return true;  // `has_sleepers_` stays 1, which causes one unnecessary wake-up
      const bool is_woken = sleep(before);
      if (look()) return true;  // the condition may have become true even after the deadline
      if (!is_woken) return false;
    }
  }

  // Not inlined, to keep callers small.
  [[gnu::noinline]] void wake_sleepers() noexcept {
    // Another thread wakes the sleeping threads.
    if (has_sleepers_.exchange(0, std::memory_order_seq_cst) == 0) return;
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
  }

  // A check takes the cache lines of the condition from the other side, and with more pauses a
  // check finds more work. All checks together take a few microseconds, about as long as the system
  // call that wakes a sleeping thread. Therefore a thread that waits for another thread to return
  // from that call does not fall asleep.
  static constexpr int default_pauses = 16;
  static constexpr int max_pauses = 32;
  static constexpr int yields = 12;

  // Number of wake-ups. A futex word, because `std::atomic::notify_all` in libstdc++ may read its
  // waiter count too early and wake no thread.
  typename Atomics::word epoch_{0};
  // 1 if a thread sleeps or is about to sleep.
  typename Atomics::template atomic<std::uint32_t> has_sleepers_{0};
  [[no_unique_address]] Fences fences_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
