// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How a call with a limit of time ended, such as `batch_queue::pop_for`.
enum class wait_outcome {
  done,       ///< it has done what it was to do
  closed,     ///< the queue is closed: it never will
  timed_out,  ///< it might have later
};

/// What a push with a limit of time gives: true if the value is in the queue.
class push_result {
 public:
  /// A push that ended so.
  constexpr push_result(wait_outcome outcome) noexcept  // NOLINT: implicit, it is no more than that
      : outcome_(outcome) {}

  /// Whether the value is in the queue. Where it is not, it is the caller's.
  [[nodiscard]] constexpr explicit operator bool() const noexcept {
    return outcome_ == wait_outcome::done;
  }
  /// Whether it is not because the queue is closed.
  [[nodiscard]] constexpr bool closed() const noexcept { return outcome_ == wait_outcome::closed; }
  /// Whether it is not because there was no room in time.
  [[nodiscard]] constexpr bool timed_out() const noexcept {
    return outcome_ == wait_outcome::timed_out;
  }
  /// Which of the three it is.
  [[nodiscard]] constexpr wait_outcome outcome() const noexcept { return outcome_; }

 private:
  wait_outcome outcome_;
};

/// What a pop with a limit of time gives: a value, or why there is none.
///
///     if (auto got = queue.pop_for(2ms)) use(*got);
///     else if (got.closed()) return;
///     else flush();
template <class T>
class pop_result {
 public:
  /// A value.
  constexpr pop_result(T value) noexcept  // NOLINT: implicit, as std::optional
      : value_(std::move(value)), outcome_(wait_outcome::done) {}
  /// None, for this reason, which is not `wait_outcome::done`.
  constexpr pop_result(wait_outcome reason) noexcept : outcome_(reason) {}  // NOLINT: as above

  /// Whether there is a value.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return value_.has_value(); }
  /// The value, which there has to be.
  [[nodiscard]] constexpr T& operator*() noexcept { return *value_; }
  /// The value, which there has to be, to read.
  [[nodiscard]] constexpr const T& operator*() const noexcept { return *value_; }
  /// A member of the value, which there has to be.
  [[nodiscard]] constexpr T* operator->() noexcept { return &*value_; }
  /// A member of the value, which there has to be, to read.
  [[nodiscard]] constexpr const T* operator->() const noexcept { return &*value_; }
  /// Whether there is none because the queue is closed and empty.
  [[nodiscard]] constexpr bool closed() const noexcept { return outcome_ == wait_outcome::closed; }
  /// Whether there is none because none came in time.
  [[nodiscard]] constexpr bool timed_out() const noexcept {
    return outcome_ == wait_outcome::timed_out;
  }
  /// Which of the three it is.
  [[nodiscard]] constexpr wait_outcome outcome() const noexcept { return outcome_; }

 private:
  std::optional<T> value_;
  wait_outcome outcome_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
