#pragma once

#include <concepts>
#include <cstddef>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// Threads that all run the same work: `work(stop_token, worker)` once on each, with worker in
/// [0, size()). The work loops by itself and returns when it is done or the token says stop.
///
/// An exception out of the work ends that thread, asks the others to stop, and is kept. `Wake` is
/// called after a stop request, to wake work that blocks on something else than the token. The work
/// object is shared: its call operator runs on all threads at once. The destructor stops and joins.
template <std::invocable<std::stop_token, std::size_t> Work, std::invocable<> Wake>
class worker_pool {
 public:
  /// Starts `workers` threads. Throws `std::system_error` when the system refuses one; those that
  /// run already are stopped and joined first.
  worker_pool(std::size_t workers, Work work, Wake wake)
      : work_(std::move(work)), wake_(std::move(wake)) {
    threads_.reserve(workers);
    try {
      for (std::size_t worker = 0; worker < workers; ++worker) {
        threads_.emplace_back([this, worker] { run(worker); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  worker_pool(worker_pool&&) = delete;  // the threads refer to this object
  ~worker_pool() { stop(); }

  /// How many threads there are.
  [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }

  /// Asks all work to return and wakes it. Does not wait. From any thread.
  void request_stop() noexcept {
    stop_.request_stop();
    wake_();
  }

  /// Asks all work to return and waits until it has. Not from a worker.
  void stop() noexcept {
    request_stop();
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  /// The first exception that a worker's work has thrown, null if none did.
  [[nodiscard]] std::exception_ptr exception() const {
    const std::lock_guard lock{mutex_};
    return exception_;
  }

 private:
  void run(std::size_t worker) noexcept {
    try {
      work_(stop_.get_token(), worker);
    } catch (...) {
      {
        const std::lock_guard lock{mutex_};
        if (!exception_) exception_ = std::current_exception();
      }
      request_stop();
    }
  }

  Work work_;
  Wake wake_;
  std::stop_source stop_;
  mutable std::mutex mutex_;
  std::exception_ptr exception_;
  std::vector<std::thread> threads_;
};

}  // namespace penstock::inline PENSTOCK_ABI
