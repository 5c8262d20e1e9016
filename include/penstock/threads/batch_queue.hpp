// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/eventcount.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What may travel through a `batch_queue`: small trivial values, tickets and not owners.
template <class T>
concept queue_ticket = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> &&
                       std::is_default_constructible_v<T> && sizeof(T) <= 64;

struct ticket_ring_access;

/// A bounded first-in-first-out ring of tickets for any number of producers and consumers: what a
/// `batch_queue` waits on. Nothing here waits, and all memory is taken at construction.
///
/// Lock-free: a thread that is stopped inside a call holds up no other. One limit: while `spare`
/// producers or more stand inside `try_push` at once, another may find no room where there is some.
///
/// Entries by position, filled by a compare-and-swap on the entry itself; a tail that lags is no
/// more than a hint (after P. Tsigas and Y. Zhang, SPAA 2001). An entry's word says for which
/// position it is filled and where the ticket lies, so tickets may be larger than a word, as in SCQ
/// (R. Nikolaev, DISC 2019). Where SCQ has a second ring of free cells, each cell here says from
/// when on it is free. Positions have 64 bits: none comes again, so no old value passes for new.
template <queue_ticket T, class Atomics = std_atomics>
class ticket_ring {
 public:
  /// How many cells there are beyond the capacity, at least: a producer holds one during a push.
  static constexpr std::size_t spare = 64;

  /// Room for exactly `capacity` tickets, at least 1. Positions start with `first`: for tests.
  explicit ticket_ring(std::size_t capacity, std::uint64_t first = 0)
      : capacity_(static_cast<std::int64_t>(capacity)),
        mask_(std::bit_ceil(capacity + spare) - 1),
        entries_(mask_ + 1),
        free_from_(mask_ + 1) {
    for (std::uint64_t at = first; at != first + mask_ + 1; ++at) {
      entry_at(at).word.store(at - mask_ - 1, std::memory_order_relaxed);
      free_from_[at & mask_].store(first, std::memory_order_relaxed);
    }
    for (end* one : {&head_, &tail_}) {
      one->position.store(first, std::memory_order_relaxed);
      one->seen.store(first, std::memory_order_relaxed);
    }
  }
  ticket_ring(ticket_ring&&) = delete;

  /// Appends a ticket; false when there are `capacity` in the ring. Any thread.
  bool try_push(const T& ticket) noexcept {
    std::uint64_t tail = tail_.position.load(std::memory_order_relaxed);
    // Acquire, here and below: a thread that takes a cell that this head says is free comes after
    // the cell's reader.
    std::uint64_t head = tail_.seen.load(std::memory_order_acquire);
    claim mine;
    for (;;) {
      if (!has_room(tail, head)) {
        head = head_.position.load(std::memory_order_seq_cst);
        if (!has_room(tail, head)) return give_up(mine, tail);
        tail_.seen.store(head, std::memory_order_release);
      }
      entry& last = entry_at(tail);
      std::uint64_t word = last.word.load(std::memory_order_relaxed);
      // The tail is a hint, so its entry may have been filled for it, or even for a later lap.
      const std::uint64_t filled = first_of_lap(word) | (tail & mask_);
      if (static_cast<std::int64_t>(filled - tail) >= 0) {
        tail = filled + 1;
        continue;
      }
      if (!mine.is_made) {
        if (!make(mine, tail, head)) {
          // If no push has finished meanwhile, others inside a push hold all free cells.
          if (last.word.load(std::memory_order_relaxed) == word) return give_up(mine, tail);
          continue;
        }
        entry_at(mine.cell).write(ticket);
      }
      // Release: the ticket, and what it names. seq_cst, as is the pop's: of a thread that changes
      // the ring and then looks for sleepers, and one that says that it sleeps and then looks at
      // the ring, one sees the other.
      if (last.word.compare_exchange_strong(word, first_of_lap(tail) | mine.cell,
                                            std::memory_order_seq_cst, std::memory_order_relaxed)) {
        free_from_[mine.cell].store(tail + 1, std::memory_order_release);
        tail_.position.store(tail + 1, std::memory_order_relaxed);
        return true;
      }
    }
  }

  /// Takes the oldest ticket; false when there is none, and `ticket` is anything then. Any thread.
  bool try_pop(T& ticket) noexcept {
    std::uint64_t head = head_.position.load(std::memory_order_seq_cst);
    for (;;) {
      const std::uint64_t word = entry_at(head).word.load(std::memory_order_seq_cst);
      const std::int64_t ahead = laps_ahead(word, head);
      if (ahead < 0) return false;
      if (ahead > 0) {  // the head was an old one
        head = head_.position.load(std::memory_order_seq_cst);
        continue;
      }
      entry_at(word).read(ticket);  // counts only if the head is still the same after it
      // Release: the cell's next writer comes after this reader.
      if (head_.position.compare_exchange_strong(head, head + 1, std::memory_order_seq_cst,
                                                 std::memory_order_relaxed)) {
        return true;
      }
    }
  }

  /// Whether there was nothing to pop at some moment during the call.
  [[nodiscard]] bool was_empty() const noexcept {
    for (;;) {
      const std::uint64_t head = head_.position.load(std::memory_order_seq_cst);
      const std::uint64_t word = entry_at(head).word.load(std::memory_order_seq_cst);
      if (const std::int64_t ahead = laps_ahead(word, head); ahead <= 0) return ahead < 0;
    }
  }

 private:
  friend struct ticket_ring_access;  // tests have very many tickets go through at once

  template <class U>
  using atomic = typename Atomics::template atomic<U>;

  static constexpr std::size_t words = (sizeof(T) + 7) / 8;
  static constexpr std::uint64_t never = std::uint64_t{1} << 62;  // no head gets so far

  // One object for both, since a ticket's cell is mostly that of its position: one cache line.
  struct entry {
    // The position that this entry was last filled for; the ticket's cell in place of those of its
    // bits that say which entry it is. Invariant: grows by one lap at a time, and is filled for a
    // position only after the position before it was.
    atomic<std::uint64_t> word;
    // The cell. Invariant: only the thread that has claimed it writes, and what is read counts only
    // if the head has not passed the ticket afterwards. Atomic because of the reads that do not
    // count.
    std::array<atomic<std::uint64_t>, words> ticket;

    void write(const T& from) noexcept {
      std::array<std::uint64_t, words> copy{};
      std::memcpy(copy.data(), &from, sizeof from);
      for (std::size_t i = 0; i < words; ++i) ticket[i].store(copy[i], std::memory_order_relaxed);
    }
    void read(T& to) const noexcept {
      std::array<std::uint64_t, words> copy;
      for (std::size_t i = 0; i < words; ++i) copy[i] = ticket[i].load(std::memory_order_relaxed);
      std::memcpy(&to, copy.data(), sizeof to);
    }
  };

  // A line for each side: producers read the head only when the ring seems full.
  struct alignas(cache_line) end {
    // Invariant: the head is the position to pop next and only grows. The tail is not beyond the
    // first position that is not filled; a producer that was stopped may set it back, and the next
    // one finds that position again from any entry on, a lap at most away.
    atomic<std::uint64_t> position;
    // Of the tail only: a head that a producer has seen. Invariant: not beyond the head, so where
    // there is room by it, there is room.
    atomic<std::uint64_t> seen;
  };
  static_assert(alignof(end) == cache_line && sizeof(end) % cache_line == 0,
                "producers' and consumers' ends share no cache line");

  struct claim {
    std::uint64_t cell = 0;
    std::uint64_t before = 0;
    bool is_made = false;
  };

  [[nodiscard]] bool has_room(std::uint64_t tail, std::uint64_t head) const noexcept {
    return static_cast<std::int64_t>(tail - head) < capacity_;
  }
  [[nodiscard]] std::uint64_t first_of_lap(std::uint64_t position) const noexcept {
    return position & ~mask_;
  }
  [[nodiscard]] std::int64_t laps_ahead(std::uint64_t word, std::uint64_t position) const noexcept {
    return static_cast<std::int64_t>(first_of_lap(word) - first_of_lap(position));
  }
  entry& entry_at(std::uint64_t position) noexcept { return entries_[position & mask_]; }
  const entry& entry_at(std::uint64_t position) const noexcept {
    return entries_[position & mask_];
  }

  // Claims a free cell for a ticket: that of the position if no other producer holds it.
  bool make(claim& mine, std::uint64_t tail, std::uint64_t head) noexcept {
    for (std::uint64_t at = tail; at != tail + mask_ + 1; ++at) {
      mine.cell = at & mask_;
      mine.before = free_from_[mine.cell].load(std::memory_order_relaxed);
      if (static_cast<std::int64_t>(mine.before - head) > 0) continue;
      mine.is_made = free_from_[mine.cell].compare_exchange_strong(
          mine.before, tail + never, std::memory_order_acquire, std::memory_order_relaxed);
      if (mine.is_made) return true;
    }
    return false;
  }
  bool give_up(const claim& mine, std::uint64_t tail) noexcept {
    if (mine.is_made) free_from_[mine.cell].store(mine.before, std::memory_order_release);
    tail_.position.store(tail, std::memory_order_relaxed);
    return false;
  }

  std::int64_t capacity_;
  std::uint64_t mask_;
  std::vector<entry> entries_;
  // For each cell the head from which on it is free; `never` while a push holds it. Invariant: only
  // the thread that moves it from a value that the head has reached to `never` writes to the cell
  // and moves it again. Not among the entries: consumers do not need it, so its lines stay with the
  // producers.
  std::vector<atomic<std::uint64_t>> free_from_;
  end head_;
  end tail_;
};

}  // namespace detail

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
      detail::refuse_option("batch_queue: capacity", {capacity, " is not in 1..", max_capacity});
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
