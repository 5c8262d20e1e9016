// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include <penstock/core/error.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/exit_handler.hpp>
#include <penstock_ext/signals/support/signals_blocked.hpp>

/// State that exists once in a process, because a signal has only one handler. Translation units
/// with and without `PENSTOCK_COMPILED` share it, so it is declared outside the inline namespace
/// and consists of standard types. If the layout changes, the type needs a new name.
namespace penstock::per_process {

/// State that signal handlers share with the threads that wait for signals. The object is
/// constant-initialized and never destroyed, so a handler that runs late can still use it.
///
/// A handler accesses the object only through lock-free atomics and a system call that wakes
/// threads.
struct signal_board {
  // Invariant: the handler of a claimed signal sets the signal's bit before it advances `changes`.
  // A new claim of the signal clears the bit. In this file, bit n - 1 always represents signal n.
  std::atomic<std::uint64_t> arrived{0};
  // Invariant: the `signal_claim` that owns a signal has set the signal's bit, and clears it when
  // the claim ends.
  std::atomic<std::uint64_t> taken{0};
  // Advances after each signal, and to end a waiting thread. Threads wait on it in the kernel
  // (futex).
  std::atomic<std::uint32_t> changes{0};
  // Held while a signal action is checked and changed. No handler locks it.
  std::mutex actions;

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
                    std::atomic<std::uint32_t>::is_always_lock_free,
                "used by handlers");

  /// Advances `changes` and wakes all sleepers.
  void advance() noexcept {
    changes.fetch_add(1, std::memory_order_seq_cst);
    ::syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, (std::numeric_limits<int>::max)(), nullptr,
              nullptr, 0);
  }
  /// Waits until `is_over()` returns true. Calls `is_over()` again after each change.
  template <class IsOver>
  void wait(const IsOver& is_over) noexcept {
    for (;;) {
      const std::uint32_t before = changes.load(std::memory_order_seq_cst);
      if (is_over()) return;
      // The kernel compares `changes` with `before`, so a change in between is not missed.
      ::syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, before, nullptr, nullptr, 0);
    }
  }
};

// Has default visibility like the handler, so that all libraries in a program share the board.
[[gnu::visibility("default")]] inline constinit signal_board the_signals;

/// The signal handler. SA_RESETHAND has already reset the action when the first statement runs.
[[gnu::visibility("default")]] inline void record_signal(int number) noexcept {
  const int kept = errno;
  the_signals.arrived.fetch_or(std::uint64_t{1} << static_cast<unsigned>(number - 1),
                               std::memory_order_relaxed);
  the_signals.advance();  // seq_cst: a thread that sees the change also sees the bit
  errno = kept;
}

}  // namespace penstock::per_process

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

using per_process::record_signal;
using per_process::the_signals;

/// A set of signals. Bit n - 1 represents signal n.
using signal_mask = std::uint64_t;

inline constexpr int max_signal = 64;

[[nodiscard]] constexpr signal_mask mask_of(int number) noexcept {
  return signal_mask{1} << static_cast<unsigned>(number - 1);
}

/// Calls `use(number)` for each signal in a set.
template <class Use>
void for_each_signal(signal_mask set, Use use) {
  for (int number = 1; number <= max_signal; ++number) {
    if ((set & mask_of(number)) != 0) use(number);
  }
}

/// Installs `record_signal` as the handler of a set of signals during the lifetime of this object.
/// When the first signal arrives, the kernel restores its default action.
class signal_handlers {
 public:
  explicit signal_handlers(signal_mask set) noexcept : set_(set) {
    struct sigaction ours {};
    ours.sa_handler = &record_signal;
    ours.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART | SA_ONSTACK);
    // Blocks the other signals of the set while a handler runs, so that a second signal does not
    // interrupt the handler. The thread receives the second signal after the handler returns, with
    // the action that is in effect then.
    for_each_signal(set, [&](int number) { ::sigaddset(&ours.sa_mask, number); });
    // Holds the lock, so that `reset` runs after the loop even if the first signal has already
    // arrived.
    const std::lock_guard lock{the_signals.actions};
    for_each_signal(set, [&](int number) {
      ::sigaction(number, &ours, &former_[static_cast<std::size_t>(number)]);
    });
  }
  signal_handlers(signal_handlers&&) = delete;
  /// Restores the previous handler of each signal whose action this object still controls. The
  /// kernel may have reset such an action to the default.
  ~signal_handlers() {
    // In a child created by fork(), a thread that does not exist there may hold the mutex. The
    // child has no other threads, so it does not need the lock.
    std::unique_lock lock{the_signals.actions, std::defer_lock};
    if (!process_.is_in_child()) lock.lock();
    const bool has_come = (the_signals.arrived.load(std::memory_order_relaxed) & set_) != 0;
    for_each_signal(set_, [&](int number) {
      struct sigaction now {};
      ::sigaction(number, nullptr, &now);
      // A signal may have reached the handler on another thread. The kernel has then reset the
      // action and kept the flags, but the handler has not recorded the signal yet.
      const bool is_coming = (now.sa_flags & static_cast<int>(SA_RESETHAND)) != 0;
      const bool is_default = now.sa_handler == SIG_DFL;
      if (now.sa_handler != &record_signal && !(is_default && (has_come || is_coming))) return;
      ::sigaction(number, &former_[static_cast<std::size_t>(number)], nullptr);
    });
  }

  /// Restores the default action of signals whose handler is `record_signal`.
  static void reset(signal_mask set) noexcept {
    const std::lock_guard lock{the_signals.actions};
    for_each_signal(set, [](int number) {
      struct sigaction now {};
      ::sigaction(number, nullptr, &now);
      if (now.sa_handler == &record_signal) ::signal(number, SIG_DFL);  // NOLINT: not a handler
    });
  }

 private:
  signal_mask set_;
  const fork_guard process_{true};
  std::array<struct sigaction, max_signal + 1> former_{};
};

/// A thread that requests a stop when one of a set of signals arrives, and then ends. The
/// destructor also ends the thread, except in a child created by fork(), which does not have the
/// thread.
class signal_waiter {
 public:
  /// Throws `std::system_error` if the thread cannot be created.
  explicit signal_waiter(signal_mask set) : set_(set) {
    // The thread inherits the signal mask, so that all handlers run on other threads.
    const signals_blocked while_it_starts;
    thread_ = std::thread{[this] { work(); }};
  }
  signal_waiter(signal_waiter&&) = delete;
  ~signal_waiter() {
    if (process_.is_in_child()) {
      thread_.detach();  // the thread does not exist in this process
      return;
    }
    is_over_.store(true, std::memory_order_relaxed);
    the_signals.advance();        // seq_cst: a waiter that sees the change also sees the end
    join_unless_caller(thread_);  // a token callback may have called `exit()`
  }

  [[nodiscard]] std::stop_token token() const noexcept { return stop_.get_token(); }
  [[nodiscard]] std::optional<int> received() const noexcept {
    const int number = received_.load(std::memory_order_acquire);
    return number == 0 ? std::nullopt : std::optional{number};
  }

 private:
  void work() noexcept {
    the_signals.wait(
        [this] { return is_over_.load(std::memory_order_relaxed) || (come() & set_) != 0; });
    const signal_mask here = come() & set_;
    if (here == 0) return;
    // Precedes the stop request, because code that sees the request may rely on the action of the
    // next signal.
    signal_handlers::reset(set_);
    received_.store(std::countr_zero(here) + 1, std::memory_order_release);
    stop_.request_stop();
  }
  static signal_mask come() noexcept { return the_signals.arrived.load(std::memory_order_relaxed); }

  signal_mask set_;
  const fork_guard process_{true};
  std::stop_source stop_;
  std::atomic<int> received_{0};      // 0 if none; written once, before the stop request
  std::atomic<bool> is_over_{false};  // written before `changes` advances, read afterwards
  std::thread thread_;
};

}  // namespace detail

/// Thrown if another `stop_on_signal` in this process waits for the signal.
class [[gnu::visibility("default")]] signal_in_use : public error {
 public:
  /// Creates the error for signal `number`.
  explicit signal_in_use(int number)
      : error("stop_on_signal: signal " + std::to_string(number) +
              " is already handled by another stop_on_signal: destroy that one first, or share its "
              "token"),
        number_(number) {}
  /// Returns the signal number.
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

namespace detail {

/// The exclusive right of this object to wait for a set of signals in this process.
class signal_claim {
 public:
  explicit signal_claim(std::initializer_list<int> numbers) {
    if (numbers.size() == 0) throw option_error("stop_on_signal", "must name at least one signal");
    signal_mask wanted = 0;
    for (const int number : numbers) wanted |= mask_of(checked(number));
    // Claims all signals in a single step. If two threads want the same signal, one thread gets all
    // its signals.
    signal_mask taken = the_signals.taken.load(std::memory_order_relaxed);
    do {
      if ((taken & wanted) != 0) throw signal_in_use(std::countr_zero(taken & wanted) + 1);
    } while (
        !the_signals.taken.compare_exchange_weak(taken, taken | wanted, std::memory_order_acquire));
    mask_ = wanted;
    // Clears signals that arrived after their previous claim ended.
    the_signals.arrived.fetch_and(~mask_, std::memory_order_relaxed);
  }
  signal_claim(signal_claim&&) = delete;
  // Release, so that the next thread that claims the signals sees the restored handlers.
  ~signal_claim() { the_signals.taken.fetch_and(~mask_, std::memory_order_release); }

  [[nodiscard]] signal_mask mask() const noexcept { return mask_; }

 private:
  static int checked(int number) {
    struct sigaction now {};
    const bool is_there =
        number >= 1 && number <= max_signal && ::sigaction(number, nullptr, &now) == 0;
    if (!is_there || number == SIGKILL || number == SIGSTOP) {
      throw option_error("stop_on_signal",
                         "signal " + std::to_string(number) + " cannot be handled by a program");
    }
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      if (number != fault) continue;
      throw option_error("stop_on_signal",
                         "signal " + std::to_string(number) +
                             " reports a fault of the program, after which no thread can continue");
    }
    return number;
  }

  signal_mask mask_ = 0;
};

}  // namespace detail

/// Requests a stop through a stop token when a signal such as Ctrl-C arrives. The token can be
/// passed to the option `stop`.
///
///     ps::stop_on_signal ctrl_c{SIGINT, SIGTERM};
///     ps::loader loader{data, ps::shuffled{}, {.batch_size = 64, .stop = ctrl_c.token()}};
///
/// The first signal requests the stop. The next signal of the set has its default action, so a
/// second Ctrl-C ends the program. The handler records the signal number and wakes a thread of this
/// object, which requests the stop. Token callbacks run on that thread, so they may call functions
/// that are not async-signal-safe. Other threads need not block the signals.
///
/// During the object's lifetime, its handler replaces the handlers of the signals, even of ignored
/// signals. Interrupted system calls are restarted (SA_RESTART). The destructor ends the thread and
/// restores the previous handlers, but does not replace handlers that were installed later. The
/// token may outlive the object. Thread-safe.
///
/// A child created by fork() has the handlers but not the thread. In the child, the first signal is
/// lost, and the second signal ends the child. In the child, the destructor restores the previous
/// handlers without waiting.
class stop_on_signal {
 public:
  /// Starts waiting for the signals `numbers`. Throws `option_error` if the list is empty, or if a
  /// signal cannot be handled or indicates a program fault. Throws `signal_in_use`, and
  /// `std::system_error` if the thread cannot be created. After an exception, the previous handlers
  /// remain installed.
  stop_on_signal(std::initializer_list<int> numbers)
      : claim_(numbers), waiter_(claim_.mask()), handlers_(claim_.mask()) {}
  /// Starts waiting for one signal.
  explicit stop_on_signal(int number) : stop_on_signal({number}) {}
  stop_on_signal(stop_on_signal&&) = delete;  // the thread references this object

  /// Returns the token. The first signal requests its stop.
  [[nodiscard]] std::stop_token token() const noexcept { return waiter_.token(); }
  /// Returns the signal that requested the stop, or `std::nullopt`. Any thread may call this.
  [[nodiscard]] std::optional<int> received() const noexcept { return waiter_.received(); }

 private:
  // Destroyed in reverse order: handlers, thread, claim.
  detail::signal_claim claim_;
  detail::signal_waiter waiter_;
  detail::signal_handlers handlers_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
