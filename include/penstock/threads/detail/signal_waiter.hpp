// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <bit>
#include <csignal>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stop_token>
#include <thread>

#include <penstock/core/support/own_process.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/detail/signal_board.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A thread that requests a stop once one of some signals has come. It ends with that, or with the
/// destructor, which leaves it alone in a child made by fork(), where it is not.
class signal_waiter {
 public:
  /// Throws `std::system_error` if the system refuses the thread.
  explicit signal_waiter(signal_mask set) : set_(set) {
    // The thread inherits the mask: the program's handlers, and ours, run on other threads.
    sigset_t all;
    sigset_t former;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &former);
    try {
      thread_ = std::thread{[this] { work(); }};
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
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
  const own_process process_{true};
  std::stop_source stop_;
  std::atomic<int> received_{0};      // 0: none. Written once, before the stop is requested
  std::atomic<bool> is_over_{false};  // written before a change of the board, read after one
  std::thread thread_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
