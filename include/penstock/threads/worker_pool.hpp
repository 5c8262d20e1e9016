// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/exit_handler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// The default wake-up function of a `worker_pool`, which does nothing.
struct wake_nothing {
  void operator()() const noexcept {}
};

}  // namespace detail

/// A fixed number of threads, each of which runs `work(stop_token, worker)` once with a different
/// `worker` in [0, size()).
///
///     std::mutex mutex;
///     std::condition_variable_any added;
///     std::deque<int> jobs;  // guarded by mutex
///
///     penstock::worker_pool pool{4, [&](std::stop_token stop, std::size_t worker) {
///       std::unique_lock lock{mutex};
///       while (added.wait(lock, stop, [&] { return !jobs.empty(); })) {
///         const int job = jobs.front();
///         jobs.pop_front();
///         lock.unlock();
///         process(job, worker);
///         lock.lock();
///       }
///     }};
///
///     for (int job = 0; job < 100; ++job) {
///       const std::lock_guard lock{mutex};
///       jobs.push_back(job);
///       added.notify_one();
///     }
///     pool.stop();     // returns when all jobs are done and all threads have ended
///     pool.rethrow();  // throws the exception of `process`, if any
///
/// All threads share one `Work` object and call it concurrently. The work runs its own loop, and
/// returns when it is done or when a stop is requested. If the work blocks on an operation that
/// does not observe the stop token, pass a `Wake` function. The pool calls it after each stop
/// request, on the thread that requested the stop. The function must not throw.
///
/// If the work throws, the pool keeps the first exception and requests a stop. `rethrow` or
/// `exception` retrieves the exception. The destructor prints an exception that was not retrieved
/// to stderr.
template <std::invocable<std::stop_token, std::size_t> Work,
          std::invocable<> Wake = detail::wake_nothing>
class worker_pool {
 public:
  /// Starts `workers` threads. If a thread cannot be created, stops and joins the running threads,
  /// and throws `std::system_error`.
  worker_pool(std::size_t workers, Work work, Wake wake = {})
      : size_(workers), work_(std::move(work)), wake_(std::move(wake)) {
    threads_.reserve(workers);
    try {
      while (threads_.size() < workers) {
        threads_.emplace_back([this, worker = threads_.size()] { run(worker); });
      }
    } catch (const std::system_error& error) {
      const std::size_t started = threads_.size();
      stop();
      throw std::system_error(
          error.code(),
          detail::str_cat(
              {"worker_pool: thread ", started + 1, " of ", workers,
               (" cannot be started: lower workers, or raise the limit on threads (ulimit -u, the "
                "container's limit on pids) or on address space (ulimit -v), which their stacks "
                "use")}));
    } catch (...) {
      stop();
      throw;
    }
  }
  worker_pool(worker_pool&&) = delete;  // the threads reference this object
  /// Stops the pool.
  ~worker_pool() {
    stop();
    if (exception_ != nullptr && !is_retrieved_) {
      detail::print_unhandled("worker_pool: a worker's", exception_);
    }
  }

  /// Returns the number of threads.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Requests a stop and returns without waiting. Any thread may call this.
  void request_stop() noexcept {
    stop_.request_stop();
    std::invoke(wake_);
  }

  /// Requests a stop and waits until all threads have ended. A second call has no effect. If a
  /// worker thread calls this, for example through `exit()`, that thread is detached.
  void stop() noexcept {
    request_stop();
    std::vector<std::thread> threads;
    {
      // Concurrent calls, for example by a worker, must not join a thread twice.
      const std::lock_guard lock{mutex_};
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) {
      if (thread.joinable()) detail::join_unless_caller(thread);  // false for detached threads
    }
  }

  /// Detaches the thread of `worker`, so that `stop` does not wait for it. The caller must keep
  /// this object alive until the work of that thread returns, and the work must not throw after
  /// this call. Has no effect after `stop`.
  void detach(std::size_t worker) noexcept {
    const std::lock_guard lock{mutex_};
    if (worker < threads_.size() && threads_[worker].joinable()) threads_[worker].detach();
  }

  /// Returns true if the calling thread belongs to this pool.
  [[nodiscard]] bool is_worker() const noexcept { return current_ == this; }

  /// Returns the first exception of the work, or null. Any thread may call this. The result is
  /// final after `stop`.
  [[nodiscard]] std::exception_ptr exception() const noexcept {
    const std::lock_guard lock{mutex_};
    is_retrieved_ = exception_ != nullptr;
    return exception_;
  }
  /// Throws the first exception of the work, if any.
  void rethrow() const {
    if (const auto first = exception()) std::rethrow_exception(first);
  }

 private:
  // Not inlined, because GCC 12 would warn about an uninitialized std::stop_source.
  [[gnu::noinline]] static std::stop_source make_stop_source() { return {}; }

  // Must not access this object after the work has returned without an exception (see `detach`).
  void run(std::size_t worker) noexcept {
    current_ = this;
    try {
      std::invoke(work_, stop_.get_token(), worker);
    } catch (...) {
      {
        const std::lock_guard lock{mutex_};
        if (exception_ == nullptr) exception_ = std::current_exception();
      }
      request_stop();
    }
  }

  // The pool of the current thread.
  static inline constinit thread_local const worker_pool* current_ = nullptr;

  std::size_t size_;
  Work work_;
  Wake wake_;
  std::stop_source stop_ = make_stop_source();
  mutable std::mutex mutex_;  // guards the members below, except in the constructor
  std::exception_ptr exception_;
  mutable bool is_retrieved_ = false;
  std::vector<std::thread> threads_;  // indexed by worker; empty after `stop`
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
