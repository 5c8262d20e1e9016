// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/worker_pool.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The threads of a loader. In contrast to a `worker_pool`, this pool can stop without waiting for
/// workers whose read hangs. Such a lost worker is detached, and shares ownership of this object
/// until its read returns.
template <std::invocable<std::stop_token, std::size_t> Work, std::invocable<> Wake>
class detachable_workers {
 public:
  /// Starts `workers` threads that run `work(stop_token, worker)`. Throws the same errors as
  /// `worker_pool`.
  detachable_workers(std::size_t workers, Work work, Wake wake)
      : work_(std::move(work)), states_(workers), pool_(workers, body{this}, std::move(wake)) {}
  detachable_workers(detachable_workers&&) = delete;
  /// Stops all workers. Prints the exception of a worker unless it was retrieved.
  ~detachable_workers() {
    stop();
    if (error_ != nullptr && !is_retrieved_) print_unhandled("worker_pool: a worker's", error_);
  }

  /// Returns the number of workers.
  [[nodiscard]] std::size_t size() const noexcept { return states_.size(); }

  /// Requests a stop and returns without waiting. Any thread may call this.
  void request_stop() noexcept { pool_.request_stop(); }

  /// Requests a stop and waits until all workers have ended, except the calling worker and detached
  /// workers.
  void stop() noexcept {
    stop([](std::size_t) { return false; }, nullptr);
    pool_.stop();
  }

  /// Requests a stop and waits until each worker has ended or `is_lost(worker)` is true. With an
  /// `owner`, lost workers are detached and share ownership of `owner` until their work returns.
  /// `owner` must keep this object and all data of the work alive. Without an `owner`, a later
  /// `stop` waits for the lost workers. Returns the number of detached workers. Only one thread at
  /// a time may call this.
  template <std::predicate<std::size_t> IsLost>
  std::size_t stop(IsLost is_lost, const std::shared_ptr<void>& owner) noexcept {
    request_stop();
    exempt_caller();
    std::size_t detached = 0;
    for (std::size_t worker = 0; worker < states_.size(); ++worker) {
      state& its = states_[worker];
      std::unique_lock lock{mutex_};
      changed_.wait(lock, [&] {
        return its.has_ended || its.is_detached || its.is_exempt || is_lost(worker);
      });
      if (its.has_ended || its.is_detached || (!its.is_exempt && owner == nullptr)) continue;
      its.is_detached = true;
      its.owner = owner;
      pool_.detach(worker);
      ++detached;
    }
    return detached;
  }

  /// Makes every `stop` return without waiting for the calling thread, if it is a worker.
  void exempt_caller() noexcept {
    {
      const std::lock_guard lock{mutex_};
      for (state& each : states_) {
        if (each.thread == std::this_thread::get_id()) each.is_exempt = true;
      }
    }
    changed_.notify_all();
  }

  /// Makes a waiting `stop` evaluate `is_lost` again. Any thread may call this.
  void recheck_lost() noexcept {
    { const std::lock_guard lock{mutex_}; }  // Orders this call after an evaluation in progress.
    changed_.notify_all();
  }

  /// Marks `error` as retrieved, so that the destructor does not print it. Has no effect unless
  /// `error` is the exception of a worker.
  void mark_retrieved(const std::exception_ptr& error) noexcept {
    const std::lock_guard lock{mutex_};
    if (error_ != nullptr && error_ == error) is_retrieved_ = true;
  }

 private:
  struct state {
    std::thread::id thread;
    bool has_ended = false;
    bool is_detached = false;
    // True if the worker itself has called `stop` or `exempt_caller`. `stop` never waits for such a
    // worker.
    bool is_exempt = false;
    std::shared_ptr<void> owner;  // set for a detached worker
  };

  struct body {
    detachable_workers* self;
    void operator()(const std::stop_token& stop, std::size_t worker) const noexcept {
      // The release of the last owner destroys `self`, the pool of `self`, and this function
      // object.
      const std::shared_ptr<void> owner = self->run(stop, worker);
    }
  };

  std::shared_ptr<void> run(const std::stop_token& stop, std::size_t worker) noexcept {
    {
      const std::lock_guard lock{mutex_};
      states_[worker].thread = std::this_thread::get_id();
    }
    try {
      work_(stop, worker);
    } catch (...) {
      {
        const std::lock_guard lock{mutex_};
        if (error_ == nullptr) error_ = std::current_exception();
      }
      request_stop();
    }
    // Invariant: either `stop` sees that the work has ended and does not detach the thread, or the
    // thread finds the owner that it must keep alive.
    const std::lock_guard lock{mutex_};
    states_[worker].has_ended = true;
    changed_.notify_all();
    return std::move(states_[worker].owner);
  }

  Work work_;
  std::mutex mutex_;  // guards `states_`, `error_` and `is_retrieved_`
  std::vector<state> states_;
  std::exception_ptr error_;  // first exception of a worker
  bool is_retrieved_ = false;
  std::condition_variable changed_;
  worker_pool<body, Wake> pool_;  // declared last, because its threads use the members above
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
