#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>

#include <penstock/core/version.hpp>

namespace penstock::inline PENSTOCK_ABI::detail {

/// A 32-bit number whose waiters sleep in the kernel at once.
///
/// The standard's own `wait` spins and yields before it sleeps (libstdc++ 12: 16 turns, four of them
/// yields), which whoever waits here has done as it saw fit. And where many yield, each to all others,
/// that takes so long that there is always something new before one of them falls asleep: 64 workers,
/// for each of whose batches two are enough, took 175 us of processor time a batch, and take 60 with
/// `claim_cursor::wait_past`, which is what uses it.
class futex_word : public std::atomic<std::uint32_t> {
 public:
  using std::atomic<std::uint32_t>::atomic;
  using std::atomic<std::uint32_t>::operator=;

  /// Sleeps until the value is not `old`. Woken by those below alone.
  void wait(std::uint32_t old, std::memory_order order) const noexcept {
    // The kernel compares once more, under its lock: a change between the two is not slept through.
    while (load(order) == old) in_kernel(FUTEX_WAIT_PRIVATE, old);
  }
  /// Wakes one sleeper, to look again.
  void notify_one() noexcept { in_kernel(FUTEX_WAKE_PRIVATE, 1); }
  /// Wakes all of them.
  void notify_all() noexcept { in_kernel(FUTEX_WAKE_PRIVATE, (std::numeric_limits<int>::max)()); }

 private:
  // Errors need no look: a value that has changed, a signal, nobody asleep.
  template <class Argument>
  void in_kernel(int operation, Argument argument) const noexcept {
    ::syscall(SYS_futex, this, operation, argument, nullptr, nullptr, 0);
  }
};

static_assert(sizeof(futex_word) == 4, "the kernel looks at four bytes");

}  // namespace penstock::inline PENSTOCK_ABI::detail
