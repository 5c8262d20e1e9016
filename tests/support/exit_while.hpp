// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdlib>
#include <thread>

#include "support/asleep.hpp"

namespace test {

/// Calls `exit(7)` while another thread is blocked in `wait()`. A static object joins that thread,
/// just as a static loader joins its workers, so the process ends only if `wait()` returns. Call
/// this function only once, in a child process.
template <class Wait>
[[noreturn]] void exit_while(const Wait& wait) {
  static std::thread waiter;
  static const struct joining {
    ~joining() { waiter.join(); }
  } at_exit;
  std::atomic<long> number{0};
  waiter = std::thread{[&] {
    number = this_thread_number();
    wait();
  }};
  while (number == 0) std::this_thread::yield();
  wait_until_asleep(number);
  std::exit(7);
}

}  // namespace test
