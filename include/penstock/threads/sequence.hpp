// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>  // not immintrin.h: a third of a second for each unit that includes us
#endif

#include <penstock/core/version.hpp>
#include <penstock/threads/detail/futex_word.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The distance that keeps two variables of different threads from sharing a cache line. Our own
/// constant: the standard's changes with compiler flags, and with it would our layouts.
#if defined(__aarch64__)
inline constexpr std::size_t cache_line = 128;
#else
inline constexpr std::size_t cache_line = 64;
#endif

/// A value that shares its cache line with nothing: one that many threads read while its neighbours
/// would be written, or the other way round.
template <class T>
struct alignas(cache_line) own_line {
  T value;
};

static_assert(alignof(own_line<std::uint64_t>) == cache_line &&
                  sizeof(own_line<std::uint64_t>) == cache_line,
              "what comes before and behind it lies in other lines");

/// The atomics and the ways of waiting that the lock-free parts are written with. A template
/// parameter everywhere, so that a model checker can run the very same source.
struct std_atomics {
  /// A number that threads share.
  template <class T>
  using atomic = std::atomic<T>;
  /// The number of a `basic_sequence`.
  using word = detail::futex_word;

  /// Says to the core that this thread spins.
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

/// A 32-bit number that threads wait on: spin briefly, yield, then sleep in the kernel.
///
/// 32 bits, because the kernel's futex has as many. What was written before `store` or `advance` is
/// seen by who has waited for the value.
template <class Atomics = std_atomics>
class basic_sequence {
 public:
  /// Begins at `value`.
  explicit basic_sequence(std::uint32_t value = 0) noexcept : value_(value) {}

  /// The value now.
  [[nodiscard]] std::uint32_t load() const noexcept {
    return value_.load(std::memory_order_acquire);
  }

  /// Sets the value and wakes all who sleep. One system call if anybody sleeps, none otherwise.
  void store(std::uint32_t value) noexcept {
    value_.store(value, std::memory_order_seq_cst);
    wake();
  }

  /// Adds one, from any thread, and wakes all who sleep.
  void advance() noexcept {
    advance_quietly();
    wake();
  }

  /// Adds one, and leaves sleepers asleep until somebody calls `wake`; who is not asleep yet sees it.
  void advance_quietly() noexcept { value_.fetch_add(1, std::memory_order_seq_cst); }

  /// Adds one and wakes `count` of those who sleep, or all if there are no more, by one system
  /// call. For waiters of whom any `count` will do, for lack of work for more of them; who is not
  /// asleep yet sees it too.
  void advance_waking(std::uint32_t count) noexcept {
    advance_quietly();
    // Who is on the way to or from its sleep is counted too: then one who sleeps is woken in its
    // stead.
    if (sleepers_.load(std::memory_order_seq_cst) != 0) value_.notify(count);
  }

  /// Wakes all who sleep, to look at the value again.
  void wake() noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) value_.notify_all();
  }

  /// Returns once `done(value)` holds for the current value; `done` must depend on nothing that
  /// changes without a `store` or `advance` behind it. Who expects to wait for long says that it need
  /// not yield first.
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

/// The fences of a eventcount: one for who has made a change, one for who is about to sleep. Of two
/// threads that each write, call one of them and read what the other one writes, one sees it.
template <class Atomics>
struct even_fences {
  static void of_changer() noexcept { Atomics::fence(); }
  static void of_sleeper() noexcept { Atomics::fence(); }
};

/// Where threads wait for what is no number, as for a ticket in a queue. Whoever changes what they wait
/// for rings; that costs a fence while nobody sleeps, and one system call for all that fell asleep since
/// the last one.
template <class Atomics = std_atomics, class Fences = even_fences<Atomics>>
class basic_eventcount {
 public:
  /// Wakes all who sleep, to look again. To be called behind each change that somebody may wait for.
  void ring() noexcept {
    announce();
    wake();
  }

  /// The first half of `ring`: leaves sleepers asleep until somebody calls `wake`; who is not asleep
  /// yet sees the change.
  void announce() noexcept { fences_.of_changer(); }

  /// The second half, for all that was announced before, by this thread or by another one.
  void wake() noexcept {
    // Looked at first: it is mostly 0, and then the line stays with all who ring.
    if (asked_.load(std::memory_order_seq_cst) == 0) return;
    if (asked_.exchange(0, std::memory_order_seq_cst) == 0) return;  // another one wakes them
    // seq_cst: the library notifies only if it finds a waiter, which has to come after this write.
    rings_.fetch_add(1, std::memory_order_seq_cst);
    rings_.notify_all();
  }

  /// Returns once `look()` is true. The caller has looked before: this begins with a pause, for a look
  /// takes cache lines away from the one who is about to make it true.
  template <class Look>
  void wait(Look look) noexcept {
    for (int pauses = first_pauses; pauses <= last_pauses; pauses *= 2) {
      for (int pause = 0; pause < pauses; ++pause) Atomics::pause();
      if (look()) return;
    }
    for (int turn = 0; turn < yields; ++turn) {
      Atomics::yield();
      if (look()) return;
    }
    do {
      // Invariant: a sleeper asks, then looks for the last time; a writer makes its change, then looks
      // whether somebody asked. There is a fence between the two steps of each, and one fence is the
      // first. If it is the writer's, this look finds the change. If it is the sleeper's, the writer,
      // or who calls `wake` for it, finds 1; or it finds 0 because another one has taken the 1 and
      // rings. That ring is not in `seen`, which was read before the sleeper asked: the wait ends.
      const std::uint32_t seen = rings_.load(std::memory_order_relaxed);
      asked_.exchange(1, std::memory_order_seq_cst);
      fences_.of_sleeper();
      if (look()) return;  // and asked_ remains 1: one wake-up too many
      rings_.wait(seen, std::memory_order_acquire);
    } while (!look());
  }

 private:
  // Few looks, some pauses apart: each look takes the lines of a queue's ends off the other side's core,
  // and what gathers meanwhile moves in one go. All together a few microseconds, about what the system
  // call takes that wakes a sleeper: who waits for somebody who is just in it does not fall asleep too.
  static constexpr int first_pauses = 16;
  static constexpr int last_pauses = 32;
  static constexpr int yields = 12;

  typename Atomics::template atomic<std::uint32_t> rings_{0};
  typename Atomics::template atomic<std::uint32_t> asked_{0};  // 1: somebody sleeps, or is about to
  [[no_unique_address]] Fences fences_;
};

/// The sequence that the library itself uses.
using sequence = basic_sequence<>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
