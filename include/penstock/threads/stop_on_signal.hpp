// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include <penstock/core/error.hpp>
#include <penstock/core/support/fork_guard.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/signals_blocked.hpp>
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
  const fork_guard process_{true};
  std::array<struct sigaction, largest_signal + 1> former_{};
};

/// A thread that requests a stop once one of some signals has come. It ends with that, or with the
/// destructor, which leaves it alone in a child made by fork(), where it is not.
class signal_waiter {
 public:
  /// Throws `std::system_error` if the system refuses the thread.
  explicit signal_waiter(signal_mask set) : set_(set) {
    // The thread inherits the mask: the program's handlers, and ours, run on other threads.
    const signals_blocked while_it_starts;
    thread_ = std::thread{[this] { work(); }};
  }
  signal_waiter(signal_waiter&&) = delete;
  ~signal_waiter() {
    if (process_.is_in_child()) {
      thread_.detach();  // it is not here to be waited for
      return;
    }
    is_over_.store(true, std::memory_order_relaxed);
    the_signals.changes.advance();  // seq_cst: a waiter that sees the change sees the end
    thread_.join();
  }

  [[nodiscard]] std::stop_token token() const noexcept { return stop_.get_token(); }
  [[nodiscard]] std::optional<int> received() const noexcept {
    const int number = received_.load(std::memory_order_acquire);
    return number == 0 ? std::nullopt : std::optional{number};
  }

 private:
  void work() noexcept {
    the_signals.changes.wait(
        [this](std::uint32_t) {
          return is_over_.load(std::memory_order_relaxed) || (come() & set_) != 0;
        },
        false);
    const signal_mask here = come() & set_;
    if (here == 0) return;
    // Before the stop: whoever knows of it may rely on what the next signal does.
    signal_handlers::reset(set_);
    received_.store(std::countr_zero(here) + 1, std::memory_order_release);
    stop_.request_stop();
  }
  static signal_mask come() noexcept { return the_signals.arrived.load(std::memory_order_relaxed); }

  signal_mask set_;
  const fork_guard process_{true};
  std::stop_source stop_;
  std::atomic<int> received_{0};      // 0: none. Written once, before the stop is requested
  std::atomic<bool> is_over_{false};  // written before a change of the board, read after one
  std::thread thread_;
};

}  // namespace detail

/// Another live `stop_on_signal` of this process waits for the signal.
class [[gnu::visibility("default")]] signal_in_use : public error {
 public:
  /// Of this signal.
  explicit signal_in_use(int number)
      : error("stop_on_signal: signal " + std::to_string(number) +
              " is waited for by another stop_on_signal: end that one first, or share its token"),
        number_(number) {}
  /// The signal's number.
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

namespace detail {

/// The right to wait for some signals, of which a process has one each.
class signal_claim {
 public:
  explicit signal_claim(std::initializer_list<int> numbers) {
    if (numbers.size() == 0) throw option_error("stop_on_signal", "no signal is named");
    signal_mask wanted = 0;
    for (const int number : numbers) wanted |= mask_of(checked(number));
    // One step for all of them: of two threads that want the same one, one gets all of its own.
    signal_mask taken = the_signals.taken.load(std::memory_order_relaxed);
    do {
      if ((taken & wanted) != 0) throw signal_in_use(std::countr_zero(taken & wanted) + 1);
    } while (
        !the_signals.taken.compare_exchange_weak(taken, taken | wanted, std::memory_order_acquire));
    mask_ = wanted;
    the_signals.arrived.fetch_and(~mask_, std::memory_order_relaxed);  // came too late for the last
  }
  signal_claim(signal_claim&&) = delete;
  // Release: the thread that takes the right next finds the handlers given back.
  ~signal_claim() { the_signals.taken.fetch_and(~mask_, std::memory_order_release); }

  [[nodiscard]] signal_mask mask() const noexcept { return mask_; }

 private:
  static int checked(int number) {
    struct sigaction now {};
    const bool is_there =
        number >= 1 && number <= largest_signal && ::sigaction(number, nullptr, &now) == 0;
    if (!is_there || number == SIGKILL || number == SIGSTOP) {
      throw option_error("stop_on_signal",
                         "signal " + std::to_string(number) + " can't be handled by a program");
    }
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      if (number != fault) continue;
      throw option_error("stop_on_signal", "signal " + std::to_string(number) +
                                               " tells of a fault of the program, after which no "
                                               "thread can go on");
    }
    return number;
  }

  signal_mask mask_ = 0;
};

}  // namespace detail

/// A stop token that signals request, such as Ctrl-C: for the option `stop`.
///
///     ps::stop_on_signal ctrl_c{SIGINT, SIGTERM};
///     ps::loader loader{data, ps::shuffled{}, {.batch_size = 64, .stop = ctrl_c.token()}};
///
/// The first of the signals requests the stop; the next one, of whichever kind, has its default
/// action: a second Ctrl-C ends the program. The handler notes the number and wakes a thread of
/// this object's, which requests the stop: callbacks of the token run there, and may do what a
/// handler may not. So it also works where threads were started before, none of which blocks the
/// signal.
///
/// While it lives, the signals have its handlers, also those that were ignored; calls that a signal
/// interrupts go on (SA_RESTART). The destructor gives the former handlers back, but leaves alone
/// what was installed after it, and ends its thread. The token may live on. Any thread.
///
/// A child made by fork() has the handlers and not the thread: there the first signal is lost, and
/// the second one ends it. The destructor gives the former handlers back there too, and waits for
/// nothing.
class stop_on_signal {
 public:
  /// Waits for these signals from now on. Throws `option_error` for none at all and for one that
  /// can't be handled, or that tells of a fault of the program; `signal_in_use`; and
  /// `std::system_error` if no thread can be started. The signals have their former handlers then.
  stop_on_signal(std::initializer_list<int> numbers)
      : claim_(numbers), waiter_(claim_.mask()), handlers_(claim_.mask()) {}
  /// Waits for one signal.
  explicit stop_on_signal(int number) : stop_on_signal({number}) {}
  stop_on_signal(stop_on_signal&&) = delete;  // the thread refers to it

  /// Is requested to stop by the first of the signals.
  [[nodiscard]] std::stop_token token() const noexcept { return waiter_.token(); }
  /// The signal that has requested the stop; nothing so far. From any thread.
  [[nodiscard]] std::optional<int> received() const noexcept { return waiter_.received(); }

 private:
  // In this order: handlers go first, then the thread, then the right to the signals.
  detail::signal_claim claim_;
  detail::signal_waiter waiter_;
  detail::signal_handlers handlers_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
