// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

/// A FIFO queue that passes leases from a loop to other threads and holds at most `max` leases. The
/// remaining leases can still be popped after `close`.
template <class T>
class hand_over {
 public:
  explicit hand_over(std::size_t max) : max_(max) {}

  void push(T&& value) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return values_.size() < max_; });
    values_.push_back(std::move(value));
    changed_.notify_all();
  }
  /// Returns an empty optional if the queue is closed and empty.
  [[nodiscard]] std::optional<T> pop() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return !values_.empty() || is_closed_; });
    if (values_.empty()) return std::nullopt;
    std::optional<T> value{std::move(values_.front())};
    values_.pop_front();
    changed_.notify_all();
    return value;
  }
  void close() {
    const std::lock_guard lock{mutex_};
    is_closed_ = true;
    changed_.notify_all();
  }

 private:
  std::size_t max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
  bool is_closed_ = false;
};
