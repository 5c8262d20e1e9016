// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Threads that all run the same work: `work(stop_token, worker)` once on each, with worker in
/// [0, size()). The work loops by itself and returns when it is done or the token says stop.
///
/// An exception out of the work ends that thread, asks the others to stop, and is kept: ask for it
/// by `rethrow` or `exception`. `Wake` is called after a stop request, to wake work that blocks on
/// something else than the token. The work object is shared: its call operator runs on all threads
/// at once. The destructor stops and joins; an exception that nobody has asked for it tells in a
/// line on stderr.
template <std::invocable<std::stop_token, std::size_t> Work, std::invocable<> Wake>
class worker_pool {
 public:
  /// Starts `workers` threads. Throws `std::system_error` when the system refuses one; those that
  /// run already are stopped and joined first.
  worker_pool(std::size_t workers, Work work, Wake wake)
      : work_(std::move(work)), wake_(std::move(wake)), ends_(workers) {
    threads_.reserve(workers);
    try {
      for (std::size_t worker = 0; worker < workers; ++worker) {
        threads_.emplace_back([this, worker] {
          // What is let go of last may be this pool itself, see `stop`.
          const std::shared_ptr<void> kept = run(worker);
        });
      }
    } catch (const std::system_error& refusal) {
      stop();
      throw std::system_error(
          refusal.code(),
          detail::joined(
              {"worker_pool: thread ", threads_.size() + 1, " of ", workers,
               (" can't be started: lower workers, or raise the limit on threads (ulimit -u, the "
                "container's limit on pids) or on address space (ulimit -v), where their stacks "
                "lie")}));
    } catch (...) {
      stop();
      throw;
    }
  }
  worker_pool(worker_pool&&) = delete;  // the threads refer to this object
  ~worker_pool() {
    stop();
    if (exception_ != nullptr && !is_told_) {
      detail::print_unasked("worker_pool: a worker's", exception_);
    }
  }

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

  /// Like `stop()`, but does not wait for workers for which `is_lost(worker)` is true. With a
  /// `state` its thread is let go, and holds it until its work returns: it has to keep this pool
  /// and all that the work uses alive. Without, the thread stays, for a later stop. Returns how
  /// many were let go. `is_lost` is asked again at `look_again`.
  template <std::predicate<std::size_t> IsLost>
  std::size_t stop(IsLost is_lost, const std::shared_ptr<void>& state) noexcept {
    request_stop();
    std::size_t let_go = 0;
    for (std::size_t worker = 0; worker < threads_.size(); ++worker) {
      if (!threads_[worker].joinable()) continue;
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] { return ends_[worker].has_ended || is_lost(worker); });
      if (ends_[worker].has_ended) {
        lock.unlock();
        threads_[worker].join();
      } else if (state != nullptr) {
        ends_[worker].kept = state;
        threads_[worker].detach();
        ++let_go;
      }
    }
    return let_go;
  }

  /// Makes a `stop` that waits ask again which workers are lost. From any thread.
  void look_again() noexcept {
    { const std::lock_guard lock{mutex_}; }  // between its look and its sleep: after it
    changed_.notify_all();
  }

  /// The first exception that a worker's work has thrown, null if none did.
  [[nodiscard]] std::exception_ptr exception() const {
    const std::lock_guard lock{mutex_};
    is_told_ = exception_ != nullptr;
    return exception_;
  }
  /// Says that somebody has got `told`: if that is the first exception, the destructor does not
  /// tell it.
  void note_told(const std::exception_ptr& told) const noexcept {
    const std::lock_guard lock{mutex_};
    if (exception_ != nullptr && exception_ == told) is_told_ = true;
  }
  /// Throws the first exception that a worker's work has thrown; returns if none did. From any
  /// thread; after `stop` no other one comes.
  void rethrow() const {
    if (const auto first = exception()) std::rethrow_exception(first);
  }

 private:
  struct end {
    bool has_ended = false;
    std::shared_ptr<void> kept;  // of a thread that was let go
  };

  std::shared_ptr<void> run(std::size_t worker) noexcept {
    try {
      work_(stop_.get_token(), worker);
    } catch (...) {
      {
        const std::lock_guard lock{mutex_};
        if (!exception_) exception_ = std::current_exception();
      }
      request_stop();
    }
    // Invariant: under one lock, either the work has ended before this thread is let go, or the
    // thread finds what it has to keep.
    const std::lock_guard lock{mutex_};
    ends_[worker].has_ended = true;
    changed_.notify_all();
    return std::move(ends_[worker].kept);
  }

  Work work_;
  Wake wake_;
  std::stop_source stop_;
  mutable std::mutex mutex_;  // guards the next three
  std::exception_ptr exception_;
  mutable bool is_told_ = false;  // somebody has asked for it
  std::vector<end> ends_;         // by worker
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
