// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

/// The state of a thread as the kernel reports it.
struct glance {
  bool asleep = false;
  std::uint64_t switches = 0;  // number of context switches; unchanged if the thread has not run
  bool operator==(const glance&) const = default;
};

inline glance look_at(long thread) {
  std::ifstream file{"/proc/self/task/" + std::to_string(thread) + "/status"};
  glance seen;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("State:")) seen.asleep = line.find("S (sleeping)") != std::string::npos;
    const auto colon = line.find("ctxt_switches:");
    if (colon != std::string::npos) seen.switches += std::stoull(line.substr(colon + 14));
  }
  return seen;
}

inline std::vector<glance> look_at(const std::vector<long>& all) {
  std::vector<glance> each;
  for (const long thread : all) each.push_back(look_at(thread));
  return each;
}

/// Returns true if all threads come to rest: every thread is asleep and stays asleep while this
/// thread yields repeatedly. The function retries if a thread was only briefly blocked on a lock.
/// Returns false at the deadline, for example because a thread polls periodically.
inline bool come_to_rest(const std::vector<long>& all) {
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + std::chrono::seconds{60};
  // A yield may take a whole time slice on a busy machine, so the number of yields is bounded by
  // time. The deadline applies only after 20 checks.
  for (int look = 0; look < 20 || steady_clock::now() < deadline; ++look) {
    const auto then = look_at(all);
    const auto enough = steady_clock::now() + std::chrono::milliseconds{20};
    for (int i = 0; i < 30'000 && steady_clock::now() < enough; ++i) std::this_thread::yield();
    const bool sleep = std::all_of(then.begin(), then.end(), [](auto& one) { return one.asleep; });
    if (sleep && look_at(all) == then) return true;
  }
  return false;
}
