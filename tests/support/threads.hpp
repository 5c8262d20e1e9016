// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

/// The threads of this process, by the kernel's numbers. One that was joined may still be there.
inline std::set<std::string> listed_threads() {
  std::set<std::string> all;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    all.insert(task.path().filename().string());
  }
  return all;
}

/// The threads that are there before a test begins any.
inline std::set<std::string> present_threads() {
  std::thread{[] {}}.join();  // with its first thread, ThreadSanitizer begins one of its own
  return listed_threads();
}

/// Whether the threads that are not among `before` are, or soon become, `count`: only what fails
/// waits for the deadline.
inline bool threads_added_become(const std::set<std::string>& before, std::size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  for (;;) {
    const auto now = listed_threads();
    const auto is_new = [&](const std::string& thread) { return before.count(thread) == 0; };
    if (std::count_if(now.begin(), now.end(), is_new) == static_cast<std::ptrdiff_t>(count)) {
      return true;
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
}
