// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The fences of an eventcount: one for a thread that has made a change, one for a thread that is
/// about to sleep. Of two threads that each write, call one of them and read what the other one
/// writes, at least one sees the other's write.
template <class Atomics>
struct even_fences {
  static void of_changer() noexcept { Atomics::fence(); }
  static void of_sleeper() noexcept { Atomics::fence(); }
};

/// An eventcount: threads wait for any condition, such as a ticket in a queue. A thread that
/// changes the condition calls `notify` afterwards. That costs a fence while no thread sleeps, and
/// one system call for all that fell asleep since the last one.
template <class Atomics = std_atomics, class Fences = even_fences<Atomics>>
class basic_eventcount {
 public:
  /// Wakes all sleepers, to look again. To be called after each change that a thread may wait for.
  void notify() noexcept {
    announce();
    wake();
  }

  /// The first half of `notify`: leaves sleepers asleep until some thread calls `wake`. A waiter
  /// that is still awake sees the change.
  void announce() noexcept { fences_.of_changer(); }

  /// The second half of `notify`, for all that was announced before, by this thread or another.
  void wake() noexcept {
    // Read first: it is mostly 0, and then the cache line stays shared among all that notify.
    if (asked_.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      wake_sleepers();
  }

  /// Returns once `look()` is true. The caller has looked before: this starts with `pauses`, and
  /// twice as many before each later look, since a look takes cache lines away from the thread that
  /// is about to make it true. Fewer of them, at least 1, suit a condition that does not gather
  /// much meanwhile.
  template <class Look>
  void wait(Look look, int pauses = usual_pauses) noexcept {
    (void)wait_by(look, pauses, [this](std::uint32_t seen) {
      notified_.wait(seen, std::memory_order_acquire);
      return true;
    });
  }

  /// As `wait`, but not beyond `end`: false if `look()` was still false then. A wake-up is for all
  /// sleepers, so one that gives up takes none away from another; and it looks once more, so what
  /// it was woken for at the last moment is not left lying.
  template <class Look, class Deadline>
  [[nodiscard]] bool wait_until(Look look, Deadline end, int pauses = usual_pauses) noexcept {
    return wait_by(look, pauses, [this, end](std::uint32_t seen) {
      return notified_.wait_until(seen, std::memory_order_acquire, end);
    });
  }

 private:
  // `sleep(seen)` sleeps until the count of notifications is not `seen`; false if it gives up.
  template <class Look, class Sleep>
  bool wait_by(Look& look, int pauses, Sleep sleep) noexcept {
    for (; pauses <= most_pauses; pauses *= 2) {
      for (int pause = 0; pause < pauses; ++pause) Atomics::pause();
      if (look()) return true;
    }
    for (int turn = 0; turn < yields; ++turn) {
      Atomics::yield();
      if (look()) return true;
    }
    for (;;) {
      // Invariant: a sleeper asks, then looks for the last time; a writer makes its change, then
      // reads whether a thread has asked. There is a fence between the two steps of each, and one
      // fence is the first. If it is the writer's, this look finds the change. If it is the
      // sleeper's, the writer, or the thread that calls `wake` for it, reads 1; or it reads 0
      // because another one has taken the 1 and notifies. That is not in `seen`, which was read
      // before the sleeper asked: the wait ends.
      const std::uint32_t seen = notified_.load(std::memory_order_relaxed);
      asked_.exchange(1, std::memory_order_seq_cst);
      fences_.of_sleeper();
      if (look()) return true;  // and asked_ remains 1: one wake-up too many
      const bool is_woken = sleep(seen);
      if (look()) return true;
      if (!is_woken) return false;  // and asked_ may remain 1, as above
    }
  }

  // Out of line, so that the calls around a wake-up that wakes no thread stay small.
  [[gnu::noinline]] void wake_sleepers() noexcept {
    if (asked_.exchange(0, std::memory_order_seq_cst) == 0) return;  // another thread wakes them
    notified_.fetch_add(1, std::memory_order_release);
    notified_.notify_all();
  }

  // Few looks, some pauses apart: each look takes the lines of a queue's ends off the other side's
  // core, and what gathers meanwhile moves in one go. All together a few microseconds, about what
  // the system call takes that wakes a sleeper: a thread that waits for one inside that call stays
  // awake.
  static constexpr int usual_pauses = 16;
  static constexpr int most_pauses = 32;
  static constexpr int yields = 12;

  // A word, whose waiters the kernel finds. The standard's wait has a count of them, and a library
  // that reads it too early after the change of the number wakes no thread.
  typename Atomics::word notified_{0};
  typename Atomics::template atomic<std::uint32_t> asked_{0};  // 1: a thread sleeps, or is about to
  [[no_unique_address]] Fences fences_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
