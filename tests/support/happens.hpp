// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace test {

/// Returns true if a forbidden event occurs while this thread yields repeatedly.
inline bool happens(const std::function<bool()>& what) {
  for (int turn = 0; turn < 1000 && !what(); ++turn) std::this_thread::yield();
  return what();
}
inline bool happens(const std::atomic<bool>& what) {
  return happens([&what] { return what.load(); });
}

}  // namespace test
