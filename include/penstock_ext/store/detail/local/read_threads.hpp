// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/detail/local/file_read.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Threads that read files for callers, which read along. They start when they are first
/// needed, without the program's signals. From any thread, in a child made by fork() too: there
/// are other threads then.
class read_threads {
 public:
  /// At most `most` threads.
  explicit read_threads(std::size_t most) : most_(most) {}
  read_threads(const read_threads&) = delete;
  read_threads& operator=(const read_threads&) = delete;
  ~read_threads() {
    pool* const last = pool_.load(std::memory_order_acquire);
    if (last != nullptr && last->process == ::getpid()) delete last;
  }

  /// Reads all of `reads`, and returns when none is under way any more. Those that could not be
  /// read are not whole then.
  void read(std::span<file_read> reads) {
    if (!reads.empty()) pool_of_process().read(reads, most_);
  }

 private:
  struct job {
    std::span<file_read> reads;
    std::size_t next = 0;
    std::size_t under_way = 0;
    std::condition_variable ended = {};
  };

  // Invariant, under the mutex: a job is in `jobs` as long as it has a read that nobody has taken.
  // So no thread finds a job that its caller has left: it leaves when all are taken and none is
  // under way.
  struct pool {
    const ::pid_t process = ::getpid();
    std::mutex mutex = {};  // guards what follows; held for no read
    std::condition_variable wanted = {};
    std::vector<job*> jobs = {};
    std::vector<std::thread> threads = {};
    bool refused = false;
    bool ends = false;

    pool() = default;
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;
    ~pool() {
      {
        const std::lock_guard lock{mutex};
        ends = true;
      }
      wanted.notify_all();
      for (std::thread& one : threads) one.join();
    }

    void read(std::span<file_read> reads, std::size_t most) {
      std::unique_lock lock{mutex};
      start((std::min)(most, reads.size() - 1));
      job mine{reads};
      jobs.push_back(&mine);
      wanted.notify_all();
      while (mine.next < reads.size()) read_one(lock, mine);
      mine.ended.wait(lock, [&] { return mine.under_way == 0; });
    }

    void start(std::size_t count) {
      if (refused || threads.size() >= count) return;
      // A thread starts with the mask of its maker, and the program's signals are not for it.
      ::sigset_t all;
      ::sigset_t former;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &former);
      try {
        while (threads.size() < count) threads.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        refused = true;  // fewer threads do the same work
      } catch (...) {
        ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
        throw;
      }
      ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
    }

    void read_one(std::unique_lock<std::mutex>& lock, job& from) {
      file_read& read = from.reads[from.next];
      ++from.next;
      ++from.under_way;
      if (from.next == from.reads.size()) std::erase(jobs, &from);
      lock.unlock();
      read_rest(read);
      lock.lock();
      --from.under_way;
      // Under the lock: its caller may go as soon as it has it.
      if (from.under_way == 0 && from.next == from.reads.size()) from.ended.notify_all();
    }

    void work() {
      std::unique_lock lock{mutex};
      while (true) {
        wanted.wait(lock, [&] { return ends || !jobs.empty(); });
        if (ends) return;
        read_one(lock, *jobs.front());
      }
    }
  };

  // The pool of a process that made this one has no threads here, and its mutex may be locked for
  // good: it is left as it is, and its memory is lost.
  pool& pool_of_process() {
    pool* found = pool_.load(std::memory_order_acquire);
    if (found != nullptr && found->process == ::getpid()) return *found;
    auto made = std::make_unique<pool>();
    if (!pool_.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
      return *found;  // another thread of this process was first
    }
    return *made.release();
  }

  const std::size_t most_;
  // Invariant: nothing, or a pool of this process, which stays until the end, or one of a process
  // that this one comes from, in whose place one of this process comes.
  std::atomic<pool*> pool_{nullptr};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
