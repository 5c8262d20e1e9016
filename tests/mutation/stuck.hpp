// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

/// Returns the context switch counts of all threads of the process except the calling thread. The
/// map is empty if one of them is not asleep.
inline std::map<std::string, std::string> sleeping_threads() {
  const std::string self = std::to_string(::syscall(SYS_gettid));
  std::map<std::string, std::string> found;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/task", gone}) {
    const std::string id = entry.path().filename();
    if (id == self) continue;
    std::ifstream file{entry.path() / "status"};
    std::string switches;
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("State:", 0) == 0 && line.find("S (") == std::string::npos) return {};
      if (line.find("ctxt_switches:") != std::string::npos) switches += line;
    }
    found.emplace(id, switches);
  }
  return found;
}

/// Gives the other threads time to fall asleep. The time is bounded, so that a thread that never
/// sleeps cannot block the caller.
inline void let_others_sleep() {
  for (int looks = 0; looks < 100 && sleeping_threads().empty(); ++looks) {
    std::this_thread::yield();
  }
}

/// Exits with `exit_code` when the process is stuck: every thread sleeps, and no thread has run
/// between several checks. The detection is exact if only threads of this process can wake each
/// other, so a slow machine is never mistaken for a hang.
class stuck_watch {
 public:
  explicit stuck_watch(int exit_code) : thread_([this, exit_code] { watch(exit_code); }) {}
  stuck_watch(stuck_watch&&) = delete;
  ~stuck_watch() {
    over_.store(true);
    thread_.join();
  }

 private:
  void watch(int exit_code) const {
    constexpr int looks = 10;
    std::map<std::string, std::string> before;
    for (int same = 0; !over_.load();) {
      auto now = sleeping_threads();
      same = !now.empty() && now == before ? same + 1 : 0;
      if (same == looks) std::_Exit(exit_code);
      before = std::move(now);
      std::this_thread::sleep_for(std::chrono::milliseconds{5});  // no ordering depends on this
    }
  }

  std::atomic<bool> over_{false};
  std::thread thread_;
};
