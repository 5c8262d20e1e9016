// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/prctl.h>

#include <chrono>
#include <cstdint>
#include <thread>

namespace bench {

/// A sequence of waits with an exact total length: if a wait returns late, the next wait is
/// shortened. A stage that waits n times for `cost` occupies its thread for n * `cost`, without
/// using a core. Only one thread may use an object.
class steady_wait {
 public:
  void operator()(std::chrono::nanoseconds cost) {
    if (!is_exact_) ::prctl(PR_SET_TIMERSLACK, 1UL);  // the kernel may otherwise add 50 us
    is_exact_ = true;
    const auto until = std::chrono::steady_clock::now() + cost - late_;
    std::this_thread::sleep_until(until);
    late_ = std::chrono::steady_clock::now() - until;
  }

 private:
  std::chrono::nanoseconds late_{0};
  bool is_exact_ = false;
};

/// Performs `count` waits for `cost` on a separate thread, and returns their mean duration in
/// seconds. This is the floor of a loop whose slowest stage waits for `cost`.
inline double seconds_of_waits(std::chrono::nanoseconds cost, int count) {
  double seconds = 0;
  std::thread{[&] {
    steady_wait waits;
    waits(cost);  // starts the clock after a late return, because it also stops after one
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) waits(cost);
    const std::chrono::duration<double> span = std::chrono::steady_clock::now() - begin;
    seconds = span.count() / count;
  }}.join();
  return seconds;
}

}  // namespace bench
