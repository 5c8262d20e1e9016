// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/store/detail/local/file_read.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Threads that read files for those that ask, who read along. They start when they are first
/// needed. From any thread.
class read_threads {
 public:
  /// At most `most` threads.
  explicit read_threads(std::size_t most) : most_(most) {}
  read_threads(const read_threads&) = delete;
  read_threads& operator=(const read_threads&) = delete;
  ~read_threads() {
    {
      const std::lock_guard lock{mutex_};
      ends_ = true;
    }
    wanted_.notify_all();
    for (std::thread& one : threads_) one.join();
  }

  /// Reads all of `reads`, and returns when none is under way any more. Those that could not be
  /// read are not whole then.
  void read(std::span<file_read> reads) {
    if (reads.empty()) return;
    std::unique_lock lock{mutex_};
    start(reads.size() - 1);
    job mine{reads};
    jobs_.push_back(&mine);
    wanted_.notify_all();
    while (mine.next < reads.size()) read_one(lock, mine);
    mine.ended.wait(lock, [&] { return mine.under_way == 0; });
  }

 private:
  // Invariant, under the mutex: a job is in `jobs_` as long as it has a read that nobody has taken.
  // So no thread finds a job that its caller has left: it leaves when all are taken and none is
  // under way.
  struct job {
    std::span<file_read> reads;
    std::size_t next = 0;
    std::size_t under_way = 0;
    std::condition_variable ended = {};
  };

  void start(std::size_t wanted) {
    if (refused_) return;
    try {
      while (threads_.size() < (std::min)(most_, wanted)) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      refused_ = true;  // fewer threads do the same work
    }
  }

  void read_one(std::unique_lock<std::mutex>& lock, job& from) {
    file_read& read = from.reads[from.next];
    ++from.next;
    ++from.under_way;
    if (from.next == from.reads.size()) std::erase(jobs_, &from);
    lock.unlock();
    read_rest(read);
    lock.lock();
    --from.under_way;
    // Under the lock: its caller may go as soon as it has it.
    if (from.under_way == 0 && from.next == from.reads.size()) from.ended.notify_all();
  }

  void work() {
    std::unique_lock lock{mutex_};
    while (true) {
      wanted_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
      if (ends_) return;
      read_one(lock, *jobs_.front());
    }
  }

  const std::size_t most_;
  std::mutex mutex_;  // guards what follows; held for no read
  std::condition_variable wanted_;
  std::vector<job*> jobs_;
  std::vector<std::thread> threads_;
  bool refused_ = false;
  bool ends_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
