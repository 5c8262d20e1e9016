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

/// The alignment that keeps variables of different threads in different cache lines. The standard's
/// constant depends on compiler flags, and layouts must not.
#if defined(__aarch64__)
inline constexpr std::size_t cache_line = 128;
#else
inline constexpr std::size_t cache_line = 64;
#endif

/// A value that shares its cache line with no other object. Use it if the value is read often and
/// its neighbours are written often, or the other way round.
template <class T>
struct alignas(cache_line) own_line {
  T value;
};

static_assert(alignof(own_line<std::uint64_t>) == cache_line &&
                  sizeof(own_line<std::uint64_t>) == cache_line,
              "the neighbours lie in other cache lines");

/// The time at which a wait gives up, measured by the kernel's monotonic clock, which cannot be
/// set.
using deadline = std::chrono::steady_clock::time_point;

/// Returns `now` plus `limit`, or the largest deadline if that overflows. Returns `now` if `limit`
/// is negative or not a number.
template <class Rep, class Period>
[[nodiscard]] deadline deadline_in(const std::chrono::duration<Rep, Period>& limit,
                                   deadline now = std::chrono::steady_clock::now()) noexcept {
  // Computed in floating point, because a `duration` in hours may overflow nanoseconds.
  using wide = std::chrono::duration<long double, deadline::period>;
  const wide wanted = limit;
  if (!(wanted > wide::zero())) return now;  // true for NaN, too
  if (wanted >= wide{(deadline::max)() - now}) return (deadline::max)();
  return now + std::chrono::ceil<deadline::duration>(limit);
}

/// Converts a time point of any precision to a deadline, rounded up.
template <class Duration>
[[nodiscard]] deadline deadline_at(
    const std::chrono::time_point<std::chrono::steady_clock, Duration>& at) noexcept {
  return deadline_in(at.time_since_epoch(), deadline{});
}

/// A 32-bit atomic number on which threads sleep in the kernel, by futex(2).
///
/// `std::atomic::wait` spins and yields before it sleeps (libstdc++ 12: 16 turns, four of them
/// yields). Callers of this class have already spun and yielded as long as that helps. If many
/// threads yield to each other, each sees a change before it falls asleep: 64 workers took 175 us
/// of processor time per batch with `std::atomic::wait`, and take 60 us with this class.
class futex_word {
 public:
  /// Creates a number with an initial `value`.
  constexpr explicit futex_word(std::uint32_t value = 0) noexcept : value_(value) {}

  /// Returns the value.
  [[nodiscard]] std::uint32_t load(
      std::memory_order order = std::memory_order_seq_cst) const noexcept {
    return value_.load(order);
  }
  /// Sets the value. Does not wake sleepers.
  void store(std::uint32_t value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    value_.store(value, order);
  }
  /// Adds `value` and returns the previous value. Does not wake sleepers.
  std::uint32_t fetch_add(std::uint32_t value,
                          std::memory_order order = std::memory_order_seq_cst) noexcept {
    return value_.fetch_add(value, order);
  }

  /// Sleeps until the value is not `old`. Only `notify` and `notify_all` wake a sleeper. May change
  /// errno.
  void wait(std::uint32_t old, std::memory_order order) const noexcept {
    // The kernel compares the value again under its lock, so a change before the sleep is not
    // missed.
    while (load(order) == old) in_kernel(FUTEX_WAIT_PRIVATE, old);
  }
  /// Sleeps until the value is not `old`, at most until `end`. Returns false if the value was still
  /// `old` at that time. May change errno.
  bool wait_until(std::uint32_t old, std::memory_order order, deadline end) const noexcept {
    // FUTEX_WAIT_BITSET takes an absolute time, so a sleep that is restarted does not end later.
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
  /// Wakes `count` sleepers, or all if there are fewer, so that they compare the value again. Makes
  /// one system call.
  void notify(std::uint32_t count) noexcept {
    constexpr auto max_count = static_cast<std::uint32_t>((std::numeric_limits<int>::max)());
    // The kernel would wake one sleeper for a count of 0.
    if (count != 0) in_kernel(FUTEX_WAKE_PRIVATE, (std::min)(count, max_count));
  }
  /// Wakes all sleepers.
  void notify_all() noexcept { notify((std::numeric_limits<std::uint32_t>::max)()); }

 private:
  // Ignores errors, which mean that the value has changed, or that a signal interrupted the sleep.
  template <class Argument>
  void in_kernel(int operation, Argument argument) const noexcept {
    ::syscall(SYS_futex, &value_, operation, argument, nullptr, nullptr, 0);
  }

  std::atomic<std::uint32_t> value_;
  static_assert(sizeof(value_) == 4 && std::atomic<std::uint32_t>::is_always_lock_free,
                "the kernel reads four bytes and takes no lock of the standard library");
};

/// The atomics and waiting primitives that the lock-free classes use. A template parameter of each
/// class, so that a model checker can run the same source.
struct std_atomics {
  /// An atomic value.
  template <class T>
  using atomic = std::atomic<T>;
  /// An atomic number on which threads can sleep.
  using word = futex_word;

  /// Reduces the cost of a spin loop for the other threads of the core.
  static void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    asm volatile("pause");  // no intrinsic, see `scoped_flush_to_zero`
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }
  /// Lets other threads run.
  static void yield() noexcept { std::this_thread::yield(); }

// GCC warns that its thread sanitizer does not support fences. The fences here publish no data, so
// the sanitizer need not understand them. A precompiled header loses this pragma and needs
// -Wno-tsan.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  /// Executes a sequentially consistent fence. If two threads each write a value, call this, and
  /// then read the other thread's value, at least one thread sees the new value.
  static void fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
