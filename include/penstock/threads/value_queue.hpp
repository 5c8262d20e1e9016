// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/queue_result.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/deadline.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What a `value_queue` carries: owners too, such as leases. Moving one throws nothing.
template <class T>
concept queue_value = std::is_object_v<T> && std::is_nothrow_move_constructible_v<T> &&
                      std::is_nothrow_move_assignable_v<T> && std::is_nothrow_destructible_v<T>;

/// A bounded first-in-first-out queue of values that may own something, for any number of producers
/// and consumers: a `batch_queue` for leases, on their way to threads that work on them.
///
///     ps::value_queue<decltype(feed)::batch_type> ready{4};
///     for (auto& batch : feed.epoch(0)) if (!ready.push(std::move(batch))) break;
///     while (auto batch = ready.pop()) work_on(*batch);   // on other threads
///
/// All memory is taken at construction. A value lies in one of `capacity()` places, and tickets of
/// two `batch_queue`s say which places are full and which are free. What was written before a push
/// is seen after its pop.
///
/// A value whose push fails is still the caller's. After `close` pushes fail, and pops deliver what
/// is left. What nobody has popped is destroyed with the queue, as is what a push that ran beside
/// `close` has brought in after the last pop.
template <queue_value T, class Atomics = detail::std_atomics>
class value_queue {
 public:
  /// Room for exactly `capacity` values; throws `option_error` for 0 and above
  /// `batch_queue::max_capacity`.
  explicit value_queue(std::size_t capacity) : free_(capacity), full_(capacity), places_(capacity) {
    for (std::uint32_t at = 0; at < capacity; ++at) free_.try_push(at);
  }
  value_queue(value_queue&&) = delete;
  /// Destroys what is left.
  ~value_queue() {
    while (try_pop()) {
    }
  }

  /// How many values fit.
  [[nodiscard]] std::size_t capacity() const noexcept { return places_.size(); }

  /// Appends a value; false, and the value stays, when the queue is full or closed. Never blocks.
  [[nodiscard]] bool try_push(T&& value) noexcept {
    return !was_closed() && put(free_.try_pop(), value);
  }
  /// Appends a value, waiting for room; false, and the value stays, when the queue is closed.
  [[nodiscard]] bool push(T&& value) noexcept { return !was_closed() && put(free_.pop(), value); }
  /// As `push`, waiting at most for `limit`: any `std::chrono::duration`.
  template <class Rep, class Period>
  [[nodiscard]] push_result push_for(T&& value,
                                     const std::chrono::duration<Rep, Period>& limit) noexcept {
    return push_until(std::move(value), detail::deadline_in(limit));
  }
  /// As `push`, waiting until `end` at most, a moment of the steady clock.
  template <class Duration>
  [[nodiscard]] push_result push_until(
      T&& value, const std::chrono::time_point<std::chrono::steady_clock, Duration>& end) noexcept {
    if (was_closed()) return wait_outcome::closed;
    const auto at = free_.pop_until(end);
    if (!at) return at.outcome();
    return put(*at, value) ? wait_outcome::done : wait_outcome::closed;
  }

  /// Takes the oldest value; nothing when the queue is empty. Never blocks.
  [[nodiscard]] std::optional<T> try_pop() noexcept { return take(full_.try_pop()); }
  /// Takes the oldest value, waiting for one; nothing when the queue is closed and empty.
  [[nodiscard]] std::optional<T> pop() noexcept { return take(full_.pop()); }
  /// As `pop`, waiting at most for `limit`: any `std::chrono::duration`.
  template <class Rep, class Period>
  [[nodiscard]] pop_result<T> pop_for(const std::chrono::duration<Rep, Period>& limit) noexcept {
    return pop_until(detail::deadline_in(limit));
  }
  /// As `pop`, waiting until `end` at most, a moment of the steady clock.
  template <class Duration>
  [[nodiscard]] pop_result<T> pop_until(
      const std::chrono::time_point<std::chrono::steady_clock, Duration>& end) noexcept {
    const auto at = full_.pop_until(end);
    if (!at) return at.outcome();
    return std::move(*take(*at));
  }

  /// Wakes all waiters. Later pushes fail; pops drain what is left, then fail. May be called more
  /// than once, from any thread.
  void close() noexcept {
    // In this order: a thread that is woken for a place finds the queue closed, and takes none.
    full_.close();
    free_.close();
  }
  /// Whether `close` was called by then.
  [[nodiscard]] bool was_closed() const noexcept { return full_.was_closed(); }
  /// Whether there was nothing to pop at some moment during the call.
  [[nodiscard]] bool was_empty() const noexcept { return full_.was_empty(); }

 private:
  using tickets = batch_queue<std::uint32_t, many_producers_many_consumers, Atomics>;

  // Invariant: a value lives in a place from before its ticket is pushed into full_ until after it
  // is popped from there. The thread that has popped a place's ticket, from either queue, has the
  // place alone: tickets are popped once, and a pop comes after its push.
  union place {
    place() noexcept {}  // NOLINT: empty
    ~place() {}          // NOLINT: empty again
    T value;
  };

  bool put(std::optional<std::uint32_t> at, T& value) noexcept {
    if (!at) return false;
    place& to = places_[*at];
    std::construct_at(&to.value, std::move(value));
    // Waits where many stand inside a push at once, and fails where the queue is closed.
    if (full_.push(*at)) return true;
    value = std::move(to.value);
    std::destroy_at(&to.value);
    return false;  // and the place stays out of use: nobody asks for one any more
  }

  std::optional<T> take(std::optional<std::uint32_t> at) noexcept {
    if (!at) return std::nullopt;
    place& from = places_[*at];
    std::optional<T> value{std::move(from.value)};
    std::destroy_at(&from.value);
    // There is room for it, as soon as others get on that stand inside a push.
    while (!free_.try_push(*at) && !free_.was_closed()) Atomics::yield();
    return value;
  }

  tickets free_;
  tickets full_;
  std::vector<place> places_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
