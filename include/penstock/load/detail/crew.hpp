// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/load/detail/worker_binding.hpp>
#include <penstock/threads/worker_cores.hpp>
#include <penstock/threads/worker_pool.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a consumer gets once `stop` is requested; null where it can't be.
[[nodiscard]] inline std::exception_ptr cancellation_of(const std::stop_token& stop) {
  if (!stop.stop_possible()) return nullptr;
  return std::make_exception_ptr(cancelled("cancelled: loader_options::stop was requested"));
}

/// The threads that run an engine: its workers, the one that tells the dataset what comes, and the
/// guard's that watches the workers; and what ends them.
template <class Engine>
class crew {
 public:
  /// Starts them. `engine` must outlive this. With `borrows` a thread whose read hangs may need
  /// what the loader does not own.
  crew(Engine& engine, bool borrows)
      : engine_(&engine),
        borrows_(borrows),
        cancellation_(cancellation_of(engine.options().stop)),
        binding_(engine.device(), engine.options()),
        pool_(engine.options().workers, body{this, duty::read}, waker{this, duty::read}),
        telling_(tells(engine) ? 1 : 0, body{this, duty::tell}, waker{this, duty::tell}),
        on_stop_(engine.options().stop, cancel_all{this}) {
    binding_.wait_until_taken();
    engine.guard().start([this](std::exception_ptr error, const failure& read) noexcept {
      fail_all(std::move(error), read);
    });
  }
  crew(crew&&) = delete;
  ~crew() { shut_down(); }

  /// Where the workers run. From any thread.
  [[nodiscard]] worker_cores where() const { return binding_.where(); }

  /// Ends the workers, and waits for all whose read was not given up. The threads of the others are
  /// detached, and keep `state` alive until their read returns, where the loader owns all that they
  /// use; else they wait for `shut_down`. Returns how many were detached.
  std::size_t end_workers(const std::shared_ptr<void>& state) noexcept {
    const auto is_lost = [this](std::size_t worker) {
      return engine_->guard().is_given_up(worker);
    };
    return pool_.stop(is_lost, borrows_ ? nullptr : state);
  }

  /// After `end_workers`: ends all other threads, and waits for them; for the call that the one
  /// that tells is in, with a timeout no longer than that. It is detached then, as a worker.
  void shut_down(const std::shared_ptr<void>& state = nullptr) noexcept {
    engine_->guard().stop(borrows_);
    pool_.stop();
    const auto timeout = engine_->options().timeout;
    if (state != nullptr && !borrows_ && timeout.count() > 0) {
      telling_.request_stop();
      const bool is_silent = engine_->teller().wait_until_silent(timeout);
      telling_.stop([&](std::size_t) { return !is_silent; }, state);
    }
    telling_.stop();
  }

 private:
  static bool tells(Engine& engine) noexcept {
    return engine.options().workers != 0 && engine.teller().is_on();
  }

  /// What the threads of a pool do. Both pools are of one type: compiled once.
  enum class duty : unsigned char { read, tell };
  struct body {  // what they run
    crew* self;
    duty what;
    void operator()(const std::stop_token& stop, std::size_t worker) const {
      if (what == duty::tell) return self->engine_->teller().work();
      try {
        self->binding_.take();
        self->engine_->work(stop, worker);
      } catch (...) {
        self->fail_all(std::current_exception());
        throw;
      }
    }
  };
  struct waker {  // what wakes them after a stop request
    crew* self;
    duty what;
    void operator()() const noexcept {
      if (what == duty::tell) return self->engine_->teller().end();
      self->engine_->wake();
    }
  };
  struct cancel_all {
    crew* self;
    void operator()() const noexcept {
      self->fail_all(self->cancellation_);
      self->pool_.request_stop();
      self->telling_.request_stop();
    }
  };

  /// Nothing can be read any more: a worker failed outside a dataset's read (the device is in
  /// error), a read hangs beyond the timeout, or a stop was requested. The consumer gets the
  /// exception at its next step. From any thread.
  void fail_all(std::exception_ptr error, const std::optional<failure>& where = {}) noexcept {
    engine_->delivery().fail(std::move(error), where);
    engine_->guard().interrupt();
    pool_.look_again();
  }

  Engine* engine_;
  bool borrows_;
  const std::exception_ptr cancellation_;  // made before it is needed: a stop must not want memory
  worker_binding binding_;
  worker_pool<body, waker> pool_;     // its threads use all of the above
  worker_pool<body, waker> telling_;  // one thread, which tells the dataset what comes, or none
  std::stop_callback<cancel_all> on_stop_;  // last: it uses the pools
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
