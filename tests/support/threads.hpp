// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

/// Returns the sorted kernel thread IDs of this process. A thread that was just joined may still be
/// included.
inline std::vector<long> thread_numbers() {
  std::vector<long> all;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    all.push_back(std::stol(task.path().filename().string()));
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// Returns the threads that exist before a test starts threads.
inline std::vector<long> present_threads() {
  // ThreadSanitizer starts its own thread together with the first thread of the program.
  std::thread{[] {}}.join();
  return thread_numbers();
}

/// Returns the current threads that are not in `before`.
inline std::vector<long> new_threads(const std::vector<long>& before) {
  const auto now = thread_numbers();
  std::vector<long> fresh;
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                      std::back_inserter(fresh));
  return fresh;
}

/// Returns true if the number of threads that are not in `before` is `count` or soon becomes
/// `count`. The call waits for the whole deadline only before returning false.
inline bool threads_added_become(const std::vector<long>& before, std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (new_threads(before).size() != count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}
