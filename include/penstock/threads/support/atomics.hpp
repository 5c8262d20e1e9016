// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>  // not immintrin.h: a third of a second for each unit that includes us
#endif

#include <penstock/core/version.hpp>
#include <penstock/threads/detail/futex_word.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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
