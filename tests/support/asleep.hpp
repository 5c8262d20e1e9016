// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

/// Returns the kernel thread ID of the calling thread.
inline long this_thread_number() { return ::syscall(SYS_gettid); }

/// Returns true if the thread with this ID is asleep in the kernel. The thread must belong to this
/// process.
inline bool is_asleep(long thread) {
  std::ifstream file{"/proc/self/task/" + std::to_string(thread) + "/stat"};
  std::string line;
  std::getline(file, line);
  // The line reads "ID (name) state ...". The name may contain parentheses.
  const auto name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end + 1, 3, " S ") == 0;
}

/// Waits until the thread is asleep.
inline void wait_until_asleep(long thread) {
  while (!is_asleep(thread)) std::this_thread::yield();
}

/// A thread that lets a test wait until it is asleep.
template <class Work>
class sleeper {
 public:
  explicit sleeper(Work work)
      : thread_([this, work = std::move(work)] {
          number_ = this_thread_number();
          work();
        }) {}
  sleeper(sleeper&&) = delete;
  ~sleeper() {
    if (thread_.joinable()) thread_.join();
  }
  void wait_until_it_sleeps() const {
    while (number_ == 0) std::this_thread::yield();
    wait_until_asleep(number_);
  }
  void join() { thread_.join(); }

 private:
  std::atomic<long> number_{0};
  std::thread thread_;
};
