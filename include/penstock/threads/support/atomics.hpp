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

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Alignment that keeps variables of different threads in different cache lines. The standard
/// constant is not used, because it depends on compiler flags, which must not affect layouts.
#if defined(__aarch64__)
inline constexpr std::size_t cache_line = 128;
#else
inline constexpr std::size_t cache_line = 64;
#endif

/// A value that shares its cache line with no other object. Suits a value that is read often while
/// its neighbors are written often, or vice versa.
template <class T>
struct alignas(cache_line) own_line {
  T value;
};

static_assert(alignof(own_line<std::uint64_t>) == cache_line &&
                  sizeof(own_line<std::uint64_t>) == cache_line,
              "the neighbours lie in other cache lines");

/// The time at which a wait gives up, measured by the kernel's monotonic clock.
using deadline = std::chrono::steady_clock::time_point;

/// Returns `now` plus `limit`, or the maximum deadline if the sum overflows. Returns `now` if
/// `limit` is negative or NaN.
template <class Rep, class Period>
[[nodiscard]] deadline deadline_in(const std::chrono::duration<Rep, Period>& limit,
                                   deadline now = std::chrono::steady_clock::now()) noexcept {
  // Computed in floating point, because a `duration` in hours may overflow nanoseconds.
  using wide = std::chrono::duration<long double, deadline::period>;
  const wide wanted = limit;
  if (!(wanted > wide::zero())) return now;  // also true for NaN
  if (wanted >= wide{(deadline::max)() - now}) return (deadline::max)();
  return now + std::chrono::ceil<deadline::duration>(limit);
}

/// Converts a time point of any precision to a deadline, rounded up.
template <class Duration>
[[nodiscard]] deadline deadline_at(
    const std::chrono::time_point<std::chrono::steady_clock, Duration>& at) noexcept {
  return deadline_in(at.time_since_epoch(), deadline{});
}

/// A 32-bit atomic integer on which threads can sleep in the kernel (futex(2)).
///
/// The class replaces `std::atomic::wait`, which spins and yields before it sleeps (in libstdc++
/// 12, 16 turns with four yields). Callers of this class have already spun and yielded for long
/// enough. If many threads yield to each other, each sees a change before it falls asleep. 64
/// workers used 175 us of CPU time for each batch with `std::atomic::wait`, and use 60 us with this
/// class.
class futex_word {
 public:
  /// Creates an integer with the initial value `value`.
  constexpr explicit futex_word(std::uint32_t value = 0) noexcept : value_(value) {}

  /// Returns the value.
  [[nodiscard]] std::uint32_t load(
      std::memory_order order = std::memory_order_seq_cst) const noexcept {
    return value_.load(order);
  }
  /// Sets the value. Does not wake sleeping threads.
  void store(std::uint32_t value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    value_.store(value, order);
  }
  /// Adds `value` and returns the previous value. Does not wake sleeping threads.
  std::uint32_t fetch_add(std::uint32_t value,
                          std::memory_order order = std::memory_order_seq_cst) noexcept {
    return value_.fetch_add(value, order);
  }

  /// Sleeps until the value is not `old`. A sleeping thread checks the value only after `notify` or
  /// `notify_all`. May change errno.
  void wait(std::uint32_t old, std::memory_order order) const noexcept {
    // The kernel compares the value again under its lock, so a change before the sleep is not
    // missed.
    while (load(order) == old) in_kernel(FUTEX_WAIT_PRIVATE, old);
  }
  /// Sleeps until the value is not `old`, at most until `end`. Returns false if the value was still
  /// `old` at that time. May change errno.
  bool wait_until(std::uint32_t old, std::memory_order order, deadline end) const noexcept {
    // FUTEX_WAIT_BITSET has an absolute timeout, so a restarted sleep does not end later.
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
  /// Wakes up to `count` sleeping threads with one system call, so that they compare the value
  /// again.
  void notify(std::uint32_t count) noexcept {
    constexpr auto max_count = static_cast<std::uint32_t>((std::numeric_limits<int>::max)());
    // For a count of 0, the kernel would wake one thread.
    if (count != 0) in_kernel(FUTEX_WAKE_PRIVATE, (std::min)(count, max_count));
  }
  /// Wakes all sleeping threads.
  void notify_all() noexcept { notify((std::numeric_limits<std::uint32_t>::max)()); }

 private:
  // Ignores errors, which mean that the value has changed or that a signal interrupted the sleep.
  template <class Argument>
  void in_kernel(int operation, Argument argument) const noexcept {
    ::syscall(SYS_futex, &value_, operation, argument, nullptr, nullptr, 0);
  }

  std::atomic<std::uint32_t> value_;
  static_assert(sizeof(value_) == 4 && std::atomic<std::uint32_t>::is_always_lock_free,
                "the kernel reads four bytes and takes no lock of the standard library");
};

/// Atomics and waiting primitives of the lock-free classes. Each class has this type as a template
/// parameter, so that a model checker can run the same source.
struct std_atomics {
  /// An atomic value.
  template <class T>
  using atomic = std::atomic<T>;
  /// An atomic integer on which threads can sleep.
  using word = futex_word;

  /// Reduces the cost of a spin loop for other threads on the same core.
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    asm volatile("pause");  // not an intrinsic, as in `scoped_flush_to_zero`
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }
  /// Yields to other threads.
  static void yield() noexcept { std::this_thread::yield(); }

// GCC warns that its thread sanitizer does not support fences. The fences here do not publish data,
// so the sanitizer need not support them. A precompiled header loses this pragma and needs
// -Wno-tsan.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  /// Executes a sequentially consistent fence. If two threads each write a value, call this
  /// function, and then read the other thread's value, at least one of them sees the new value.
  static void fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
