// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A 32-bit counter on which threads can wait. Waiting threads spin briefly, yield, and then sleep
/// in the kernel. The counter has 32 bits because a futex has 32 bits.
///
/// A thread that has waited for a value sees everything that was written before the `store` or
/// `advance` that set the value. That call may still access the counter when the waiting thread
/// continues, so the counter must outlive the call.
template <class Atomics = std_atomics>
class basic_waitable_counter {
 public:
  /// Creates a counter with the initial value `value`.
  constexpr explicit basic_waitable_counter(std::uint32_t value = 0) noexcept : value_(value) {}

  /// Returns the value.
  [[nodiscard]] std::uint32_t load() const noexcept {
    return value_.load(std::memory_order_acquire);
  }

  /// Sets the value and wakes all sleeping threads. Makes a system call only if a thread sleeps.
  void store(std::uint32_t value) noexcept {
    value_.store(value, std::memory_order_seq_cst);
    wake();
  }

  /// Adds one and wakes all sleeping threads. Any thread may call this.
  void advance() noexcept {
    advance_quietly();
    wake();
  }

  /// Adds one. Sleeping threads continue to sleep until a thread calls `wake`. Waiting threads that
  /// are awake see the new value.
  void advance_quietly() noexcept { value_.fetch_add(1, std::memory_order_seq_cst); }

  /// Adds one and wakes up to `count` sleeping threads with one system call. Suits waiters of which
  /// any can do the work, if there is work for `count` of them. Waiting threads that are awake see
  /// the new value too.
  void advance_waking(std::uint32_t count) noexcept {
    advance_quietly();
    // A waiter that is about to sleep or was just woken counts as a sleeper. In that case the
    // kernel wakes another sleeper.
    if (sleepers_.load(std::memory_order_seq_cst) != 0) value_.notify(count);
  }

  /// Wakes all sleeping threads, so that they check the value again.
  void wake() noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) value_.notify_all();
  }

  /// Waits until `done(value)` returns true, and returns the value. `done` may also read other
  /// state, if a `store` or `advance` follows each change of that state. Pass `yielding = false` if
  /// a long wait is expected.
  template <class Done>
  std::uint32_t wait(Done done, bool yielding = true) const noexcept {
    std::uint32_t value = load();
    for (int spin = 0; spin < spins; ++spin) {
      if (done(value)) return value;
      Atomics::pause();
      value = load();
    }
    for (int turn = yielding ? 0 : yields; turn < yields; ++turn) {
      if (done(value)) return value;
      Atomics::yield();
      value = load();
    }
    while (!done(value)) {
      // Invariant: a sleeper announces itself before its last load of the value, and a writer
      // checks for sleepers after its write. All four operations are seq_cst, so at least one of
      // the two threads sees the other.
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      value = value_.load(std::memory_order_seq_cst);
      if (!done(value)) value_.wait(value, std::memory_order_acquire);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      value = load();
    }
    return value;
  }

 private:
  // All turns together take about two microseconds, less than a sleep and a wake-up. If cores are
  // oversubscribed, yielding lets the awaited thread run.
  static constexpr int spins = 32;
  static constexpr int yields = 8;

  typename Atomics::word value_;
  // Number of threads that sleep, are about to sleep, or were just woken.
  mutable typename Atomics::template atomic<std::uint32_t> sleepers_{0};
};

/// A counter based on standard library atomics.
using waitable_counter = basic_waitable_counter<>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
