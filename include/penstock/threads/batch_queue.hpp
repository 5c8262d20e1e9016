// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/detail/ticket_ring.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/eventcount.hpp>

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

/// The threads that use a `batch_queue`: any number on either side.
struct many_producers_many_consumers {
  /// What carries the tickets.
  template <detail::queue_ticket T, class Atomics>
  using ring = detail::ticket_ring<T, Atomics>;
  /// Where threads wait.
  template <class Atomics>
  using eventcount = detail::basic_eventcount<Atomics>;
  /// Whether the ring orders each change before whatever its thread looks at next, so that the
  /// eventcount need not.
  static constexpr bool is_ordered = true;
};

/// A bounded first-in-first-out queue of tickets: a `ticket_ring` with waiting and an end. All
/// memory is taken at construction. What was written before a push is seen after its pop. A thread
/// that is stopped inside a call holds up no others, except those that it is just waking.
///
/// Any number of producers and consumers. With one thread on either side,
/// `batch_queue<T, single_producer_single_consumer>` is faster. `penstock.hpp` leaves it out: it
/// needs `#include <penstock_ext/lockfree/single_producer_single_consumer.hpp>`.
///
/// Closing ends all waiting: pushes fail from then on, pops deliver what is left and then fail.
/// What has a limit of time tells apart whether it was that, or the limit.
template <detail::queue_ticket T, class Threads = many_producers_many_consumers,
          class Atomics = detail::std_atomics>
class batch_queue {
 public:
  /// The largest capacity there is.
  static constexpr std::size_t max_capacity = std::size_t{1} << 20;

  /// Room for exactly `capacity` tickets; throws `option_error` for 0 and above `max_capacity`.
  explicit batch_queue(std::size_t capacity) : capacity_(checked(capacity)), ring_(capacity) {}
  batch_queue(batch_queue&&) = delete;

  /// How many tickets fit.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Appends a ticket; false when the queue is full or closed. Never blocks.
  bool try_push(T ticket) noexcept {
    if (!try_push_quietly(ticket)) return false;
    pushed_.wake();
    return true;
  }

  /// Like `try_push`, but leaves consumers blocked in `pop` asleep until `wake_poppers()`: for a
  /// producer that would rather wake once for several tickets.
  bool try_push_quietly(T ticket) noexcept {
    if (was_closed() || !ring_.try_push(ticket)) return false;
    if constexpr (!Threads::is_ordered) pushed_.announce();
    return true;
  }

  /// Wakes consumers blocked in `pop`, after quiet pushes. A system call only if one is
  /// blocked.
  void wake_poppers() noexcept { pushed_.wake(); }

  /// Appends a ticket, waiting for room; false when the queue is closed.
  bool push(T ticket) noexcept { return try_push(ticket) || push_waiting(ticket); }

  /// Appends a ticket, waiting for room at most for `limit`: any `std::chrono::duration`.
  template <class Rep, class Period>
  push_result push_for(T ticket, const std::chrono::duration<Rep, Period>& limit) noexcept {
    if (try_push(ticket)) return wait_outcome::done;
    return push_before(ticket, detail::deadline_in(limit));
  }
  /// Appends a ticket, waiting for room until `end` at most, a moment of the steady clock.
  template <class Duration>
  push_result push_until(
      T ticket, const std::chrono::time_point<std::chrono::steady_clock, Duration>& end) noexcept {
    if (try_push(ticket)) return wait_outcome::done;
    return push_before(ticket, detail::deadline_at(end));
  }

  /// Takes the oldest ticket; nothing when the queue is empty. Never blocks.
  [[nodiscard]] std::optional<T> try_pop() noexcept {
    T ticket{};
    if (!ring_.try_pop(ticket)) return std::nullopt;
    if constexpr (!Threads::is_ordered) popped_.announce();
    popped_.wake();
    return ticket;
  }

  /// Takes the oldest ticket, waiting for one; nothing when the queue is closed and empty.
  [[nodiscard]] std::optional<T> pop() noexcept {
    const auto ticket = try_pop();
    return ticket ? ticket : pop_waiting();
  }

  /// Takes the oldest ticket, waiting for one at most for `limit`: any `std::chrono::duration`.
  template <class Rep, class Period>
  [[nodiscard]] pop_result<T> pop_for(const std::chrono::duration<Rep, Period>& limit) noexcept {
    if (const auto ticket = try_pop()) return *ticket;
    return pop_before(detail::deadline_in(limit));
  }
  /// Takes the oldest ticket, waiting for one until `end` at most, a moment of the steady clock.
  template <class Duration>
  [[nodiscard]] pop_result<T> pop_until(
      const std::chrono::time_point<std::chrono::steady_clock, Duration>& end) noexcept {
    if (const auto ticket = try_pop()) return *ticket;
    return pop_before(detail::deadline_at(end));
  }

  /// Wakes all waiters. Later pushes fail; pops drain what is left, then fail. May be called more
  /// than once, from any thread.
  void close() noexcept {
    closed_.store(true, std::memory_order_release);
    pushed_.notify();
    popped_.notify();
  }

  /// Whether `close` was called by then.
  [[nodiscard]] bool was_closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// Whether there was nothing to pop at some moment during the call.
  [[nodiscard]] bool was_empty() const noexcept { return ring_.was_empty(); }

 private:
  // What waits is out of line: the calls that need not wait take a fifth less time so.
  [[gnu::noinline]] bool push_waiting(T ticket) noexcept {
    if (was_closed()) return false;
    bool is_in = false;
    popped_.wait([&] { return (is_in = try_push(ticket)) || was_closed(); }, pauses());
    return is_in;
  }
  [[gnu::noinline]] std::optional<T> pop_waiting() noexcept {
    std::optional<T> ticket;
    if (!was_closed()) pushed_.wait([&] { return (ticket = try_pop()) || was_closed(); }, pauses());
    return ticket ? ticket : try_pop();  // which came between the last look and the closing
  }

  // `end` is what the word of `Atomics` takes.
  template <class Deadline>
  [[gnu::noinline]] push_result push_before(T ticket, Deadline end) noexcept {
    if (was_closed()) return wait_outcome::closed;
    bool is_in = false;
    const bool has_ended = popped_.wait_until(
        [&] { return (is_in = try_push(ticket)) || was_closed(); }, end, pauses());
    if (is_in) return wait_outcome::done;
    return has_ended ? wait_outcome::closed : wait_outcome::timed_out;
  }
  template <class Deadline>
  [[gnu::noinline]] pop_result<T> pop_before(Deadline end) noexcept {
    std::optional<T> ticket;
    const bool has_ended =
        was_closed() ||
        pushed_.wait_until([&] { return (ticket = try_pop()) || was_closed(); }, end, pauses());
    if (!has_ended) return wait_outcome::timed_out;
    if (!ticket) ticket = try_pop();  // which came between the last look and the closing
    if (ticket) return *ticket;
    return wait_outcome::closed;
  }

  // Before a thread that waits looks again: a small ring is full or empty sooner than a large one.
  [[nodiscard]] int pauses() const noexcept { return capacity_ < 64 ? 4 : 16; }

  static std::size_t checked(std::size_t capacity) {
    if (capacity == 0 || capacity > max_capacity) {
      throw option_error("batch_queue: capacity", std::to_string(capacity) + " is not in 1.." +
                                                      std::to_string(max_capacity));
    }
    return capacity;
  }

  std::size_t capacity_;
  typename Threads::template ring<T, Atomics> ring_;
  // Read by each push and each pop, written by threads that sleep and wake: a cache line each.
  alignas(detail::cache_line) typename Threads::template eventcount<Atomics> pushed_;
  alignas(detail::cache_line) typename Threads::template eventcount<Atomics> popped_;
  alignas(detail::cache_line) typename Atomics::template atomic<bool> closed_{false};
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
