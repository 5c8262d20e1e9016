// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <bit>
#include <csignal>
#include <initializer_list>
#include <optional>
#include <stop_token>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/threads/detail/signal_board.hpp>
#include <penstock/threads/detail/signal_waiter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

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
