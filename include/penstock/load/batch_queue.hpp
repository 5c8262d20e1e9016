#pragma once

#include <boost/lockfree/queue.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include <penstock/core/error.hpp>
#include <penstock/core/sequence.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// What may travel through a `batch_queue`: small trivial values, tickets and not owners.
template <class T>
concept queue_ticket = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> &&
                       std::is_default_constructible_v<T> && sizeof(T) <= 64;

/// A bounded first-in-first-out queue of tickets for any number of producers and consumers.
///
/// `boost::lockfree::queue` passes the tickets; this adds blocking, closing and nothing else. All
/// memory is taken at construction. What was written before a push is seen behind its pop. A thread
/// that is preempted inside a call holds up nobody but those that it is just waking.
///
/// Closing ends all waiting: pushes fail from then on, pops deliver what is left and then fail.
template <queue_ticket T, class Atomics = std_atomics>
class batch_queue {
 public:
  /// The largest capacity there is.
  static constexpr std::size_t max_capacity = 65534;  // Boost links nodes by 16-bit index

  /// Room for exactly `capacity` tickets; throws `option_error` for 0 and above `max_capacity`.
  explicit batch_queue(std::size_t capacity) : capacity_(checked(capacity)), queue_(capacity) {}
  batch_queue(batch_queue&&) = delete;

  /// How many tickets fit.
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Appends a ticket; false when the queue is full or closed. Never blocks.
  bool try_push(T ticket) noexcept {
    if (!try_push_quietly(ticket)) return false;
    pushed_.wake();
    return true;
  }

  /// The same, but who sleeps in `pop` goes on sleeping until `wake_poppers`: for a producer to whom
  /// a wake-up costs more than the consumer gains by each single ticket.
  bool try_push_quietly(T ticket) noexcept {
    if (was_closed() || !queue_.bounded_push(ticket)) return false;
    pushed_.announce();
    return true;
  }

  /// Wakes who sleeps in `pop` although tickets were pushed quietly. A system call only if one does.
  void wake_poppers() noexcept { pushed_.wake(); }

  /// Appends a ticket, waiting for room; false when the queue is closed.
  bool push(T ticket) noexcept {
    bool is_in = try_push(ticket);
    if (is_in || was_closed()) return is_in;
    popped_.wait([&] { return (is_in = try_push(ticket)) || was_closed(); });
    return is_in;
  }

  /// Takes the oldest ticket; nothing when the queue is empty. Never blocks.
  [[nodiscard]] std::optional<T> try_pop() noexcept {
    T ticket{};
    if (!queue_.pop(ticket)) return std::nullopt;
    popped_.ring();
    return ticket;
  }

  /// Takes the oldest ticket, waiting for one; nothing when the queue is closed and empty.
  [[nodiscard]] std::optional<T> pop() noexcept {
    auto ticket = try_pop();
    if (ticket) return ticket;
    if (!was_closed()) pushed_.wait([&] { return (ticket = try_pop()) || was_closed(); });
    return ticket ? ticket : try_pop();  // which came between the last look and the closing
  }

  /// Ends all waiting, for good. May be called more than once, from any thread.
  void close() noexcept {
    closed_.store(true, std::memory_order_release);
    pushed_.ring();
    popped_.ring();
  }

  /// Whether `close` was called by then.
  [[nodiscard]] bool was_closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  /// Whether there was nothing to pop at some moment during the call.
  [[nodiscard]] bool was_empty() const noexcept { return queue_.empty(); }

 private:
  static std::size_t checked(std::size_t capacity) {
    if (capacity == 0 || capacity > max_capacity) {
      throw option_error("batch_queue: capacity", std::to_string(capacity) + " is not in 1.." +
                                                      std::to_string(max_capacity));
    }
    return capacity;
  }

  std::size_t capacity_;
  boost::lockfree::queue<T, boost::lockfree::fixed_sized<true>> queue_;
  // Looked at with each push and each pop, written by those who sleep and wake: a line for each side.
  alignas(cache_line) basic_bell<Atomics> pushed_;
  alignas(cache_line) basic_bell<Atomics> popped_;
  alignas(cache_line) typename Atomics::template atomic<bool> closed_{false};
};

}  // namespace penstock::inline PENSTOCK_ABI
