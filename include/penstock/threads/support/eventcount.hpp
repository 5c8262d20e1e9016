// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The default fences of an eventcount: a full fence on both sides. The names are those of
/// asymmetric fences (P1202): the frequent side, which has made a change, uses a light fence, and
/// the rare side, which is about to sleep, uses a heavy fence. If two threads each write and then
/// read, and one calls `light` in between and the other calls `heavy`, at least one of them sees
/// the other's write.
template <class Atomics>
struct symmetric_fences {
  static void light() noexcept { Atomics::fence(); }
  static void heavy() noexcept { Atomics::fence(); }
};

/// An eventcount: threads wait for an arbitrary condition, such as a ticket in a queue. A thread
/// that changes the condition calls `notify` afterwards. While no thread sleeps, `notify` costs a
/// light fence; otherwise one system call wakes all sleepers.
template <class Atomics = std_atomics, class Fences = symmetric_fences<Atomics>>
class basic_eventcount {
 public:
  /// Wakes all sleepers, so that they check the condition again. Call this after each change that a
  /// thread may wait for.
  void notify() noexcept {
    announce();
    wake();
  }

  /// Announces a change: the first half of `notify`. Sleepers keep sleeping until a thread calls
  /// `wake`; waiters that are still awake see the change.
  void announce() noexcept { fences_.light(); }

  /// Wakes all sleepers: the second half of `notify`, for all changes that any thread has
  /// announced.
  void wake() noexcept {
    // Loads first, because the value is mostly 0, in which case the cache line stays shared.
    if (has_sleepers_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wake_sleepers();
  }

  /// Returns once `look()` is true. The caller has already checked the condition, so the wait
  /// starts with `pauses` spin pauses, at least 1. Before each further look, it doubles the number
  /// of pauses, because a look takes cache lines from the thread that is about to make the
  /// condition true. Pass fewer pauses if the condition is likely to change soon.
  template <class Look>
  void wait(Look look, int pauses = default_pauses) noexcept {
    (void)wait_by(look, pauses, [this](std::uint32_t before) {
      epoch_.wait(before, std::memory_order_acquire);
      return true;
    });
  }

  /// Like `wait`, but gives up at `end`. Returns false if `look()` was still false at that time. A
  /// waiter that gives up does not take a wake-up from other waiters, because a wake-up wakes all
  /// sleepers.
  template <class Look, class Deadline>
  [[nodiscard]] bool wait_until(Look look, Deadline end, int pauses = default_pauses) noexcept {
    return wait_by(look, pauses, [this, end](std::uint32_t before) {
      return epoch_.wait_until(before, std::memory_order_acquire, end);
    });
  }

 private:
  // `sleep(before)` returns when the epoch is not `before`, or false if it gave up.
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
      // Invariant: a sleeper sets `has_sleepers_` and then looks; a notifier makes its change and
      // then reads `has_sleepers_`. Each has a fence between the two steps, and one of the fences
      // comes first. If the notifier's fence comes first, this look finds the change. If the
      // sleeper's fence comes first, the thread that calls `wake` reads 1, or reads 0 because
      // another thread has reset the 1 and advances the epoch. `before` was loaded before
      // `has_sleepers_` was set, so the new epoch ends the sleep.
      const std::uint32_t before = epoch_.load(std::memory_order_relaxed);
      has_sleepers_.exchange(1, std::memory_order_seq_cst);
      fences_.heavy();
      if (look()) return true;  // `has_sleepers_` stays 1, which costs a needless wake-up
      const bool is_woken = sleep(before);
      if (look()) return true;  // even after the deadline, the change may have come
      if (!is_woken) return false;
    }
  }

  // Not inlined, to keep the callers small.
  [[gnu::noinline]] void wake_sleepers() noexcept {
    if (has_sleepers_.exchange(0, std::memory_order_seq_cst) == 0) return;  // another thread wakes
    epoch_.fetch_add(1, std::memory_order_release);
    epoch_.notify_all();
  }

  // A look takes the cache lines of the condition away from the other side, and with more pauses, a
  // look finds more work. All looks together take a few microseconds, about as long as the system
  // call that wakes a sleeper. So a thread that waits for another thread to return from that call
  // does not fall asleep.
  static constexpr int default_pauses = 16;
  static constexpr int max_pauses = 32;
  static constexpr int yields = 12;

  // Number of wake-ups. A futex word, because `std::atomic::notify_all` of libstdc++ may read its
  // count of waiters too early and wake no thread.
  typename Atomics::word epoch_{0};
  // 1 if a thread sleeps or is about to.
  typename Atomics::template atomic<std::uint32_t> has_sleepers_{0};
  [[no_unique_address]] Fences fences_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
