// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>  // not immintrin.h: a third of a second for each unit that includes us
#endif

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The distance that keeps variables of different threads in different cache lines. Not the
/// standard's constant, which changes with compiler flags and would change layouts with it.
#if defined(__aarch64__)
inline constexpr std::size_t cache_line = 128;
#else
inline constexpr std::size_t cache_line = 64;
#endif

/// A value with a cache line to itself, for a value that many threads read while its neighbours are
/// written, or the reverse.
template <class T>
struct alignas(cache_line) own_line {
  T value;
};

static_assert(alignof(own_line<std::uint64_t>) == cache_line &&
                  sizeof(own_line<std::uint64_t>) == cache_line,
              "what comes before it and after it lies in other lines");

/// A moment at which a wait ends. Of the clock that nobody sets: the kernel's monotonic one.
using deadline = std::chrono::steady_clock::time_point;

/// The moment that is `limit` after `now`, or the last one that there is. A limit below 0 is none.
template <class Rep, class Period>
[[nodiscard]] deadline deadline_in(const std::chrono::duration<Rep, Period>& limit,
                                   deadline now = std::chrono::steady_clock::now()) noexcept {
  // As floating numbers: hours that do not fit into nanoseconds compare right.
  using wide = std::chrono::duration<long double, deadline::period>;
  const wide wanted = limit;
  if (!(wanted > wide::zero())) return now;  // and what is no number
  if (wanted >= wide{(deadline::max)() - now}) return (deadline::max)();
  return now + std::chrono::ceil<deadline::duration>(limit);
}

/// A moment of any precision, rounded up.
template <class Duration>
[[nodiscard]] deadline deadline_at(
    const std::chrono::time_point<std::chrono::steady_clock, Duration>& at) noexcept {
  return deadline_in(at.time_since_epoch(), deadline{});
}

/// A 32-bit number whose waiters sleep in the kernel at once.
///
/// The standard's own `wait` spins and yields before it sleeps (libstdc++ 12: 16 turns, four of
/// them yields), which a waiter here has done as it saw fit. And where many yield, each to all
/// others, that takes so long that there is always something new before one of them falls asleep:
/// 64 workers, for each of whose batches two are enough, took 175 us of processor time a batch, and
/// take 60 with `claim_cursor::wait_past`, which is what uses it.
class futex_word {
 public:
  /// Starts at `value`.
  constexpr explicit futex_word(std::uint32_t value = 0) noexcept : value_(value) {}

  /// The current value.
  [[nodiscard]] std::uint32_t load(
      std::memory_order order = std::memory_order_seq_cst) const noexcept {
    return value_.load(order);
  }
  /// Sets the value; wakes no sleeper.
  void store(std::uint32_t value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    value_.store(value, order);
  }
  /// Adds `value` and returns what was there before; wakes no sleeper.
  std::uint32_t fetch_add(std::uint32_t value,
                          std::memory_order order = std::memory_order_seq_cst) noexcept {
    return value_.fetch_add(value, order);
  }

  /// Sleeps until the value is not `old`. Woken by those below alone. May change errno.
  void wait(std::uint32_t old, std::memory_order order) const noexcept {
    // The kernel compares once more, under its lock: a change between the two is not slept through.
    while (load(order) == old) in_kernel(FUTEX_WAIT_PRIVATE, old);
  }
  /// Sleeps until the value is not `old`, but not beyond `end`: false if it was still `old` then.
  bool wait_until(std::uint32_t old, std::memory_order order, deadline end) const noexcept {
    // The kernel takes a moment, and no length of time: a sleep that begins anew ends no later.
    const auto since_boot = end.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_boot);
    ::timespec at{};
    at.tv_sec = static_cast<decltype(at.tv_sec)>(seconds.count());
    at.tv_nsec = static_cast<decltype(at.tv_nsec)>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(since_boot - seconds).count());
    while (load(order) == old) {
      const long status = ::syscall(SYS_futex, &value_, FUTEX_WAIT_BITSET_PRIVATE, old, &at,
                                    nullptr, FUTEX_BITSET_MATCH_ANY);
      if (status == -1 && errno == ETIMEDOUT) return load(order) != old;
    }
    return true;
  }
  /// Wakes `count` sleepers, or all if there are no more, to look again. One system call.
  void notify(std::uint32_t count) noexcept {
    constexpr auto most = static_cast<std::uint32_t>((std::numeric_limits<int>::max)());
    if (count != 0)
      in_kernel(FUTEX_WAKE_PRIVATE, (std::min)(count, most));  // of 0 it would wake one
  }
  /// Wakes all of them.
  void notify_all() noexcept { notify((std::numeric_limits<std::uint32_t>::max)()); }

 private:
  // Errors need no look: a value that has changed, a signal, no sleeper.
  template <class Argument>
  void in_kernel(int operation, Argument argument) const noexcept {
    ::syscall(SYS_futex, &value_, operation, argument, nullptr, nullptr, 0);
  }

  std::atomic<std::uint32_t> value_;
  static_assert(sizeof(value_) == 4 && std::atomic<std::uint32_t>::is_always_lock_free,
                "the kernel looks at four bytes, and takes no lock of the library's");
};

/// The atomics and the ways of waiting that the lock-free parts are written with. A template
/// parameter of each, so that a model checker can run the same source.
struct std_atomics {
  /// A number that threads share.
  template <class T>
  using atomic = std::atomic<T>;
  /// The number of a `basic_waitable_counter`.
  using word = futex_word;

  /// Tells the core that this thread spins.
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }
  /// Lets another thread run.
  static void yield() noexcept { std::this_thread::yield(); }

// GCC warns that its thread sanitizer knows no fences. It need not: no data is passed by ours. (A
// precompiled header forgets this pragma: there -Wno-tsan is needed.)
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  /// Of two threads that each write, call this and read what the other one writes, one sees it.
  static void fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
