// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/eventcount.hpp>
#include <penstock/threads/support/ticket_ring.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Result of an operation with a deadline, such as `batch_queue::push_for`.
enum class wait_status {
  done,       ///< The operation has succeeded.
  closed,     ///< The queue is closed, so the operation can never succeed.
  timed_out,  ///< The deadline has passed. A later attempt may succeed.
};

/// Result of a pop with a deadline: a value, or the reason for its absence.
///
///     if (auto got = queue.pop_for(2ms)) {
///       use(*got);
///     } else if (got.closed()) {
///       return;
///     }
template <class T>
class pop_result {
 public:
  /// Creates a result with a value.
  constexpr pop_result(T value) noexcept  // NOLINT: implicit, like std::optional
      : value_(std::move(value)), status_(wait_status::done) {}
  /// Creates a result without a value. `reason` must not be `wait_status::done`.
  constexpr pop_result(wait_status reason) noexcept : status_(reason) {}  // NOLINT: implicit

  /// Returns true if there is a value.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return value_.has_value(); }
  /// Returns the value. The behavior is undefined if the value is missing.
  [[nodiscard]] constexpr T& operator*() noexcept { return *value_; }
  /// Returns the value. The behavior is undefined if the value is missing.
  [[nodiscard]] constexpr const T& operator*() const noexcept { return *value_; }
  /// Provides access to the members of the value. The behavior is undefined if the value is
  /// missing.
  [[nodiscard]] constexpr T* operator->() noexcept { return &*value_; }
  /// Provides access to the members of the value. The behavior is undefined if the value is
  /// missing.
  [[nodiscard]] constexpr const T* operator->() const noexcept { return &*value_; }
  /// Returns true if the value is missing because the queue is closed and empty.
  [[nodiscard]] constexpr bool closed() const noexcept { return status_ == wait_status::closed; }
  /// Returns true if the value is missing because the deadline has passed.
  [[nodiscard]] constexpr bool timed_out() const noexcept {
    return status_ == wait_status::timed_out;
  }
  /// Returns the status of the pop.
  [[nodiscard]] constexpr wait_status status() const noexcept { return status_; }

 private:
  std::optional<T> value_;
  wait_status status_;
};

/// The default policy of a `batch_queue`: any number of producer and consumer threads. Implemented
/// by a lock-free ring.
struct many_producers_many_consumers {
  /// The ring that stores the tickets.
  template <detail::queue_ticket T, class Atomics>
  using ring = detail::ticket_ring<T, Atomics>;
  /// The waiting primitive.
  template <class Atomics>
  using eventcount = detail::basic_eventcount<Atomics>;
  /// True if ring operations are sequentially consistent. The queue then needs no fence between a
  /// ring operation and the check for sleeping threads.
  static constexpr bool is_ordered = true;
};

/// A bounded first-in-first-out queue between threads. The elements are tickets: trivially copyable
/// values of at most 64 bytes, such as slot indices.
///
///     penstock::batch_queue<int> queue{16};
///
///     std::thread consumer{[&] {
///       while (const auto ticket = queue.pop()) process(*ticket);  // ends when closed and empty
///     }};
///     for (int ticket = 0; ticket < 100; ++ticket) queue.push(ticket);  // waits while full
///     queue.close();
///     consumer.join();
///
/// Any number of threads may push and pop. All writes of a thread before a push are visible to the
/// thread that pops the ticket. The constructor allocates all memory.
///
/// `try_push`, `try_push_quietly`, `try_pop`, `was_empty` and `was_closed` are lock-free: they
/// never wait for another thread, and make a system call only to wake sleeping threads. `push` and
/// `pop` are equally fast if they can proceed immediately. Otherwise they spin briefly, yield, and
/// then sleep in the kernel. The variants with a deadline return when it has passed.
///
/// `close` wakes all waiting threads. Later pushes fail, and pops return the remaining tickets and
/// then fail.
///
/// For one producer and one consumer, `batch_queue<T, single_producer_single_consumer>` is faster.
/// That policy requires Boost and is in
/// `<penstock_ext/lockfree/single_producer_single_consumer.hpp>`.
template <detail::queue_ticket T, class Threads = many_producers_many_consumers,
          class Atomics = detail::std_atomics>
class batch_queue {
 public:
  /// Maximum capacity.
  static constexpr std::size_t max_capacity = std::size_t{1} << 20;

  /// Creates an empty queue for `capacity` tickets. Throws `option_error` if `capacity` is 0 or
  /// greater than `max_capacity`.
  explicit batch_queue(std::size_t capacity) : capacity_(checked(capacity)), ring_(capacity) {}
  batch_queue(batch_queue&&) = delete;

  /// Returns the maximum number of tickets in the queue.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Appends a ticket. Returns false if the queue is full or closed. Never blocks.
  bool try_push(T ticket) noexcept {
    if (!try_push_quietly(ticket)) return false;
    pushed_.wake();
    return true;
  }

  /// Appends a ticket like `try_push`, but does not wake consumers that sleep in `pop`. A producer
  /// of several tickets can call `wake_poppers` once after the last ticket.
  bool try_push_quietly(T ticket) noexcept {
    if (was_closed() || !ring_.try_push(ticket)) return false;
    if constexpr (!Threads::is_ordered) pushed_.announce();
    return true;
  }

  /// Wakes the consumers that sleep in `pop`, after `try_push_quietly` calls of any thread. Makes a
  /// system call only if a consumer sleeps.
  void wake_poppers() noexcept { pushed_.wake(); }

  /// Appends a ticket. Waits while the queue is full. Returns false if the queue is closed.
  bool push(T ticket) noexcept { return try_push(ticket) || push_waiting(ticket); }

  /// Appends a ticket. Waits up to `timeout` while the queue is full.
  template <class Rep, class Period>
  wait_status push_for(T ticket, const std::chrono::duration<Rep, Period>& timeout) noexcept {
    if (try_push(ticket)) return wait_status::done;
    return push_before(ticket, detail::deadline_in(timeout));
  }
  /// Appends a ticket. Waits up to `deadline` while the queue is full.
  template <class Duration>
  wait_status push_until(
      T ticket,
      const std::chrono::time_point<std::chrono::steady_clock, Duration>& deadline) noexcept {
    if (try_push(ticket)) return wait_status::done;
    return push_before(ticket, detail::deadline_at(deadline));
  }

  /// Removes and returns the oldest ticket. Returns nothing if the queue is empty. Never blocks.
  [[nodiscard]] std::optional<T> try_pop() noexcept {
    T ticket{};
    if (!ring_.try_pop(ticket)) return std::nullopt;
    if constexpr (!Threads::is_ordered) popped_.announce();
    popped_.wake();
    return ticket;
  }

  /// Removes and returns the oldest ticket. Waits while the queue is empty. Returns nothing if the
  /// queue is closed and empty.
  [[nodiscard]] std::optional<T> pop() noexcept {
    const auto ticket = try_pop();
    return ticket ? ticket : pop_waiting();
  }

  /// Removes and returns the oldest ticket. Waits up to `timeout` while the queue is empty.
  template <class Rep, class Period>
  [[nodiscard]] pop_result<T> pop_for(const std::chrono::duration<Rep, Period>& timeout) noexcept {
    if (const auto ticket = try_pop()) return *ticket;
    return pop_before(detail::deadline_in(timeout));
  }
  /// Removes and returns the oldest ticket. Waits up to `deadline` while the queue is empty.
  template <class Duration>
  [[nodiscard]] pop_result<T> pop_until(
      const std::chrono::time_point<std::chrono::steady_clock, Duration>& deadline) noexcept {
    if (const auto ticket = try_pop()) return *ticket;
    return pop_before(detail::deadline_at(deadline));
  }

  /// Closes the queue and wakes all waiting threads. Later pushes fail. Pops return the remaining
  /// tickets and then fail. Any thread may call this, repeatedly.
  ///
  /// A concurrent push may still succeed. A consumer that has found the queue closed and empty may
  /// miss that ticket, so call `close` after the last push if no ticket may be lost.
  void close() noexcept {
    closed_.store(true, std::memory_order_release);
    pushed_.notify();
    popped_.notify();
  }

  /// Returns true if the queue is closed.
  [[nodiscard]] bool was_closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// Returns true if the queue was empty at some moment during the call.
  [[nodiscard]] bool was_empty() const noexcept { return ring_.was_empty(); }

 private:
  // Not inlined, which makes calls that need not wait a fifth faster.
  [[gnu::noinline]] bool push_waiting(T ticket) noexcept {
    if (was_closed()) return false;
    bool is_in = false;
    popped_.wait([&] { return (is_in = try_push(ticket)) || was_closed(); }, pauses());
    return is_in;
  }
  [[gnu::noinline]] std::optional<T> pop_waiting() noexcept {
    std::optional<T> ticket;
    if (!was_closed()) pushed_.wait([&] { return (ticket = try_pop()) || was_closed(); }, pauses());
    // A ticket may have been pushed between the last check and `close`.
    return ticket ? ticket : try_pop();
  }

  // `Deadline` is the deadline type of the `Atomics` word.
  template <class Deadline>
  [[gnu::noinline]] wait_status push_before(T ticket, Deadline deadline) noexcept {
    if (was_closed()) return wait_status::closed;
    bool is_in = false;
    const bool has_ended = popped_.wait_until(
        [&] { return (is_in = try_push(ticket)) || was_closed(); }, deadline, pauses());
    if (is_in) return wait_status::done;
    return has_ended ? wait_status::closed : wait_status::timed_out;
  }
  template <class Deadline>
  [[gnu::noinline]] pop_result<T> pop_before(Deadline deadline) noexcept {
    std::optional<T> ticket;
    const bool has_ended =
        was_closed() || pushed_.wait_until([&] { return (ticket = try_pop()) || was_closed(); },
                                           deadline, pauses());
    if (!has_ended) return wait_status::timed_out;
    // A ticket may have been pushed between the last check and `close`.
    if (!ticket) ticket = try_pop();
    if (ticket) return *ticket;
    return wait_status::closed;
  }

  // Returns the number of spin pauses before a waiting thread checks again. A small ring fills and
  // drains sooner.
  [[nodiscard]] int pauses() const noexcept { return capacity_ < 64 ? 4 : 16; }

  static std::size_t checked(std::size_t capacity) {
    if (capacity == 0 || capacity > max_capacity) {
      detail::throw_option_error("batch_queue: capacity",
                                 {capacity, " is not in 1..", max_capacity});
    }
    return capacity;
  }

  std::size_t capacity_;
  typename Threads::template ring<T, Atomics> ring_;
  // All operations read the members below, and threads that sleep or wake write to them, so each
  // member has its own cache line. Invariant: `pushed_` is notified after every push, `popped_`
  // after every pop, and both after `closed_` is set. `closed_` is never reset. `closed_` is stored
  // with release and loaded with acquire, because a thread that sees the value must also see all
  // tickets pushed before.
  alignas(detail::cache_line) typename Threads::template eventcount<Atomics> pushed_;
  alignas(detail::cache_line) typename Threads::template eventcount<Atomics> popped_;
  alignas(detail::cache_line) typename Atomics::template atomic<bool> closed_{false};
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
