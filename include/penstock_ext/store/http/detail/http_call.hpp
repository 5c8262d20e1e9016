// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <utility>

#include <penstock/threads/support/atomics.hpp>
#include <penstock_ext/store/http/detail/request_plan.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What the thread that calls a store and the thread that does its requests share. Counted, and so
/// outlives a caller that has given up.
///
/// Invariant: the caller's memory is written to only with `mutex_` held and the call not over; the
/// caller returns only after it has seen the call over, or made it so, with `mutex_` held. So
/// nothing is written to after the return.
class http_call {
 public:
  /// A call of `requests` requests.
  http_call(request_plan plan, std::size_t requests) : plan_(std::move(plan)), open_(requests) {}

  /// What is to be read; constant.
  [[nodiscard]] const request_plan& plan() const noexcept { return plan_; }

  /// The caller: waits until all requests are done, one has failed for good, whose exception it
  /// throws, or `limit` has passed: the call is over, and it throws what was noted last, or returns
  /// false.
  [[nodiscard]] bool wait_until(deadline limit) {
    std::unique_lock lock{mutex_};
    const bool is_over = over_.wait_until(lock, limit, [this] { return is_over_.load(); });
    is_over_.store(true);
    std::exception_ptr error = std::move(is_over ? error_ : late_);
    if (!error) return is_over;
    lock.unlock();
    std::rethrow_exception(std::move(error));
  }

  /// Whether it makes no sense to go on with any request. From any thread; may be old.
  [[nodiscard]] bool was_over() const noexcept { return is_over_.load(); }

  /// The reactor: bytes of the object of `request`, from `position` on. False if nobody wants them
  /// any more.
  [[nodiscard]] bool deliver(const planned_request& request, std::uint64_t position,
                             std::span<const std::byte> bytes) noexcept {
    const std::lock_guard lock{mutex_};
    if (is_over_.load()) return false;
    plan_.deliver(request, position, bytes);
    return true;
  }

  /// The reactor: one request is done.
  void finish_one() noexcept {
    const std::lock_guard lock{mutex_};
    if (--open_ == 0) end();
  }

  /// The reactor: an attempt has failed, and another one follows: the error if `limit` passes.
  void note(std::exception_ptr error) noexcept {
    const std::lock_guard lock{mutex_};
    if (!is_over_.load()) late_ = std::move(error);
  }

  /// The reactor: a request has failed for good. The first one counts. The exception is the
  /// caller's from here on: no other thread is to hold it.
  void fail(std::exception_ptr error) noexcept {
    const std::lock_guard lock{mutex_};
    if (is_over_.load()) return;
    error_ = std::move(error);
    end();
  }

 private:
  void end() noexcept {
    is_over_.store(true);
    over_.notify_all();
  }

  const request_plan plan_;
  std::mutex mutex_;
  std::condition_variable over_;
  std::size_t open_;          // by mutex_
  std::exception_ptr error_;  // by mutex_
  std::exception_ptr late_;   // by mutex_
  // Written with mutex_ held; read without it where an old answer only costs time.
  std::atomic<bool> is_over_{false};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
