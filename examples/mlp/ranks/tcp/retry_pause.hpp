// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "tcp_socket.hpp"

namespace mlp {

/// The time between two attempts to reach a process that may not be there yet: no event tells when
/// it is. Twice as long each time, from 5 ms to half a second, and never beyond `end`.
class retry_pause {
 public:
  explicit retry_pause(tcp_clock::time_point end) : end_(end) {}

  /// Waits before the next attempt; false, at once, where there is no time for one.
  [[nodiscard]] bool wait() {
    if (tcp_clock::now() + next_ >= end_) return false;
    std::this_thread::sleep_for(next_);
    next_ = (std::min)(2 * next_, longest);
    return true;
  }

 private:
  static constexpr std::chrono::milliseconds longest{500};

  tcp_clock::time_point end_;
  std::chrono::milliseconds next_{5};
};

}  // namespace mlp
