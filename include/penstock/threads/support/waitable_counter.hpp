// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A 32-bit number that threads wait on: spin briefly, yield, then sleep in the kernel.
///
/// 32 bits, because the kernel's futex has as many. A thread that has waited for a value sees what
/// was written before the `store` or `advance` that made it; that call may still use the number
/// then, which outlives it.
template <class Atomics = std_atomics>
class basic_waitable_counter {
 public:
  /// Starts at `value`.
  constexpr explicit basic_waitable_counter(std::uint32_t value = 0) noexcept : value_(value) {}

  /// The current value.
  [[nodiscard]] std::uint32_t load() const noexcept {
    return value_.load(std::memory_order_acquire);
  }

  /// Sets the value and wakes all sleepers: one system call if there are any, else none.
  void store(std::uint32_t value) noexcept {
    value_.store(value, std::memory_order_seq_cst);
    wake();
  }

  /// Adds one, from any thread, and wakes all sleepers.
  void advance() noexcept {
    advance_quietly();
    wake();
  }

  /// Adds one, and leaves sleepers asleep until some thread calls `wake`; a waiter that is still
  /// awake sees the new value.
  void advance_quietly() noexcept { value_.fetch_add(1, std::memory_order_seq_cst); }

  /// Adds one and wakes `count` sleepers, or all if there are fewer, by one system call. For
  /// waiters of which any `count` will do, because there is no work for more. A waiter that is
  /// still awake sees the new value too.
  void advance_waking(std::uint32_t count) noexcept {
    advance_quietly();
    // A waiter on its way to or from sleep counts as a sleeper: then another sleeper is woken
    // instead.
    if (sleepers_.load(std::memory_order_seq_cst) != 0) value_.notify(count);
  }

  /// Wakes all sleepers, to look at the value again.
  void wake() noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) value_.notify_all();
  }

  /// Returns once `done(value)` holds for the current value. `done` may depend only on state whose
  /// every change is followed by a `store` or `advance`. Pass `yielding = false` if a long wait is
  /// expected.
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
      // Invariant: a sleeper has announced itself before its last look at the value, a writer looks
      // for sleepers after its write. Both are seq_cst, so one of the two sees the other.
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      value = value_.load(std::memory_order_seq_cst);
      if (!done(value)) value_.wait(value, std::memory_order_acquire);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
      value = load();
    }
    return value;
  }

 private:
  // Together about two microseconds: less than a sleep and a wake-up cost. Yielding comes before
  // sleeping, so that a waiter does not keep the thread it waits for off an oversubscribed core.
  static constexpr int spins = 32;
  static constexpr int yields = 8;

  typename Atomics::word value_;
  mutable typename Atomics::template atomic<std::uint32_t> sleepers_{0};
};

/// The counter that the library itself uses.
using waitable_counter = basic_waitable_counter<>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
