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

/// How often each thread of the process but the calling one has gone to sleep; empty if one of them
/// runs.
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

/// Gives the other threads time to go to sleep; some time, so that one that never does is no hang.
inline void let_others_sleep() {
  for (int looks = 0; looks < 100 && sleeping_threads().empty(); ++looks) {
    std::this_thread::yield();
  }
}

/// Ends the process with a code of its own once it is stuck: every thread sleeps, and none has run
/// between several looks. Exact where nothing but the process's own threads can wake them, so no
/// slow machine is taken for a hang.
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
      std::this_thread::sleep_for(std::chrono::milliseconds{5});  // between looks: orders nothing
    }
  }

  std::atomic<bool> over_{false};
  std::thread thread_;
};
