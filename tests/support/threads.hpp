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

/// The threads of this process, by the kernel's numbers, in their order. One that was joined may
/// still be there.
inline std::vector<long> thread_numbers() {
  std::vector<long> all;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    all.push_back(std::stol(task.path().filename().string()));
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// The threads that are there before a test begins any.
inline std::vector<long> present_threads() {
  std::thread{[] {}}.join();  // with its first thread, ThreadSanitizer begins one of its own
  return thread_numbers();
}

/// The threads that are here now and are not among `before`.
inline std::vector<long> new_threads(const std::vector<long>& before) {
  const auto now = thread_numbers();
  std::vector<long> fresh;
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                      std::back_inserter(fresh));
  return fresh;
}

/// Whether the threads that are not among `before` are, or soon become, `count`: only what fails
/// waits for the deadline.
inline bool threads_added_become(const std::vector<long>& before, std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (new_threads(before).size() != count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}
