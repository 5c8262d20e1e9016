// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include <penstock/core/support/own_process.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A set of signals: bit n - 1 stands for number n.
using signal_mask = std::uint64_t;

inline constexpr int largest_signal = 64;

[[nodiscard]] constexpr signal_mask mask_of(int number) noexcept {
  return signal_mask{1} << static_cast<unsigned>(number - 1);
}

/// Calls `use(number)` for each signal of a set.
template <class Use>
void for_each_signal(signal_mask set, Use use) {
  for (int number = 1; number <= largest_signal; ++number) {
    if ((set & mask_of(number)) != 0) use(number);
  }
}

/// What handlers of signals and the threads that wait for them share: one for the process, as
/// handlers are. Constant-initialised and never destroyed, so a handler that runs late finds it.
///
/// A handler may use atomics that are lock-free, and wake a thread by the kernel.
struct signal_board {
  // Invariant: set by the handler of a signal that is waited for, before `changes` moves; taken
  // back when the right to the signal is given or ends.
  std::atomic<signal_mask> arrived{0};
  // Invariant: a bit is set by the `signal_claim` that has the right to that signal, and cleared by
  // it.
  std::atomic<signal_mask> taken{0};
  // Moves after each arrival, and when a waiter is to end.
  waitable_counter changes;
  // Held while an action is looked at and changed. No handler takes it.
  std::mutex actions;

  static_assert(std::atomic<signal_mask>::is_always_lock_free, "used by handlers");
};

// Visible, so that a program of several libraries has one.
[[gnu::visibility("default")]] inline constinit signal_board the_signals;

/// The handler. What SA_RESETHAND makes of the signal holds before its first statement.
inline void note_signal(int number) noexcept {
  const int kept = errno;
  the_signals.arrived.fetch_or(mask_of(number), std::memory_order_relaxed);
  the_signals.changes.advance();  // seq_cst: a thread that sees it sees the bit
  errno = kept;
}

/// The handlers of some signals while it lives. The first of them that comes has its default action
/// from then on, by the kernel.
class signal_handlers {
 public:
  explicit signal_handlers(signal_mask set) noexcept : set_(set) {
    struct sigaction ours {};
    ours.sa_handler = &note_signal;
    ours.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART | SA_ONSTACK);
    // While the handler of one runs, another one waits: it comes when that one's action is set.
    for_each_signal(set, [&](int number) { ::sigaddset(&ours.sa_mask, number); });
    // `reset` comes after all of them, also where the first one's signal has come already.
    const std::lock_guard lock{the_signals.actions};
    for_each_signal(set, [&](int number) {
      ::sigaction(number, &ours, &former_[static_cast<std::size_t>(number)]);
    });
  }
  signal_handlers(signal_handlers&&) = delete;
  /// Gives the former handlers back, where there is still ours, or what the signal has made of it.
  ~signal_handlers() {
    // In a child made by fork() a thread that is not there may hold it, and nobody else can.
    std::unique_lock lock{the_signals.actions, std::defer_lock};
    if (!process_.is_in_child()) lock.lock();
    const bool has_come = (the_signals.arrived.load(std::memory_order_relaxed) & set_) != 0;
    for_each_signal(set_, [&](int number) {
      struct sigaction now {};
      ::sigaction(number, nullptr, &now);
      // On another thread a signal may be on its way to our handler: the kernel has taken that and
      // left the flags, and nobody has noted the signal yet.
      const bool is_coming = (now.sa_flags & static_cast<int>(SA_RESETHAND)) != 0;
      const bool is_default = now.sa_handler == SIG_DFL;
      if (now.sa_handler != &note_signal && !(is_default && (has_come || is_coming))) return;
      ::sigaction(number, &former_[static_cast<std::size_t>(number)], nullptr);
    });
  }

  /// Gives those of a set the default action whose handler is ours.
  static void reset(signal_mask set) noexcept {
    const std::lock_guard lock{the_signals.actions};
    for_each_signal(set, [](int number) {
      struct sigaction now {};
      ::sigaction(number, nullptr, &now);
      if (now.sa_handler == &note_signal) ::signal(number, SIG_DFL);  // NOLINT: no handler
    });
  }

 private:
  signal_mask set_;
  const own_process process_{true};
  std::array<struct sigaction, largest_signal + 1> former_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
