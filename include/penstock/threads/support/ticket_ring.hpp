// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A value that can pass through a `batch_queue`: small and trivial, such as a number or a
/// non-owning handle.
template <class T>
concept queue_ticket = std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T> &&
                       std::is_default_constructible_v<T> && sizeof(T) <= 64;

struct ticket_ring_access;

/// A bounded first-in-first-out ring of tickets for any number of producers and consumers. Calls
/// never block, and `batch_queue` adds waiting. The constructor allocates all memory.
///
/// All operations are lock-free: a thread that is suspended inside a call blocks no other thread.
/// The only exception is that a push may fail although the ring is not full, while `spare` or more
/// producers are suspended inside `try_push`.
///
/// The ring is an array of entries. Positions count pushes. Position p belongs to entry p modulo
/// the length, and a push fills the entry with a compare-and-swap on its word (P. Tsigas and Y.
/// Zhang, SPAA 2001). The word contains the last filled position of the entry and the index of the
/// cell that holds the ticket. Therefore a ticket may be larger than a word, as in SCQ (R.
/// Nikolaev, DISC 2019). SCQ finds free cells with a second ring, whereas here each cell stores the
/// head position at which it becomes free. The tail is only a hint, because the words show which
/// positions are filled. Positions have 64 bits and do not repeat, so a compare-and-swap never
/// mistakes an old word.
template <queue_ticket T, class Atomics = std_atomics>
class ticket_ring {
 public:
  /// Minimum number of cells in addition to the capacity. A producer occupies a cell during a push.
  static constexpr std::size_t spare = 64;

  /// Creates an empty ring for `capacity` tickets, at least 1. Tests specify the position `first`.
  explicit ticket_ring(std::size_t capacity, std::uint64_t first = 0)
      : capacity_(static_cast<std::int64_t>(capacity)),
        mask_(std::bit_ceil(capacity + spare) - 1),
        entries_(mask_ + 1),
        free_from_(mask_ + 1) {
    for (std::uint64_t at = first; at != first + mask_ + 1; ++at) {
      entry_at(at).word.store(at - mask_ - 1, std::memory_order_relaxed);
      free_from_[at & mask_].store(first, std::memory_order_relaxed);
    }
    head_.value.store(first, std::memory_order_relaxed);
    tail_.value.position.store(first, std::memory_order_relaxed);
    tail_.value.known_head.store(first, std::memory_order_relaxed);
  }
  ticket_ring(ticket_ring&&) = delete;

  /// Appends a ticket. Returns false if the ring contains `capacity` tickets. Any thread may call
  /// this.
  bool try_push(const T& ticket) noexcept {
    std::uint64_t tail = tail_.value.position.load(std::memory_order_relaxed);
    // Each load of a head is an acquire. If a cell is free according to this head, the producer
    // writes to it after the consumer that moved the head has read it.
    std::uint64_t head = tail_.value.known_head.load(std::memory_order_acquire);
    claim mine;
    for (;;) {
      if (!has_room(tail, head)) {
        head = head_.value.load(std::memory_order_seq_cst);
        if (!has_room(tail, head)) return give_up(mine, tail);
        tail_.value.known_head.store(head, std::memory_order_release);
      }
      entry& last = entry_at(tail);
      std::uint64_t word = last.word.load(std::memory_order_relaxed);
      // The tail may lag, so that its entry is already filled for this position or for a later lap.
      const std::uint64_t filled = first_of_lap(word) | (tail & mask_);
      if (static_cast<std::int64_t>(filled - tail) >= 0) {
        tail = filled + 1;
        continue;
      }
      if (!mine.is_made) {
        if (!make(mine, tail, head)) {
          // If no other push has finished in the meantime, unfinished pushes occupy all free cells.
          if (last.word.load(std::memory_order_relaxed) == word) return give_up(mine, tail);
          continue;
        }
        entry_at(mine.cell).write(ticket);
      }
      // Release publishes the ticket and all earlier writes of its producer. Sequentially
      // consistent order, as in `try_pop`, ensures that no wake-up is lost between a thread that
      // changes the ring and then checks for sleepers, and a thread that announces its sleep and
      // then checks the ring.
      if (last.word.compare_exchange_strong(word, first_of_lap(tail) | mine.cell,
                                            std::memory_order_seq_cst, std::memory_order_relaxed)) {
        free_from_[mine.cell].store(tail + 1, std::memory_order_release);
        tail_.value.position.store(tail + 1, std::memory_order_relaxed);
        return true;
      }
    }
  }

  /// Moves the oldest ticket into `ticket`. If the ring is empty, returns false and leaves `ticket`
  /// unspecified. Any thread may call this.
  bool try_pop(T& ticket) noexcept {
    std::uint64_t head = head_.value.load(std::memory_order_seq_cst);
    for (;;) {
      const std::uint64_t word = entry_at(head).word.load(std::memory_order_seq_cst);
      const std::int64_t ahead = laps_ahead(word, head);
      if (ahead < 0) return false;
      if (ahead > 0) {  // other consumers have moved the head since it was loaded
        head = head_.value.load(std::memory_order_seq_cst);
        continue;
      }
      entry_at(word).read(ticket);  // valid only if the head has not moved afterwards
      // Release orders the next write to the cell after this read.
      if (head_.value.compare_exchange_strong(head, head + 1, std::memory_order_seq_cst,
                                              std::memory_order_relaxed)) {
        return true;
      }
    }
  }

  /// Returns true if the ring was empty at some moment during the call. Any thread may call this.
  [[nodiscard]] bool was_empty() const noexcept {
    for (;;) {
      const std::uint64_t head = head_.value.load(std::memory_order_seq_cst);
      const std::uint64_t word = entry_at(head).word.load(std::memory_order_seq_cst);
      if (const std::int64_t ahead = laps_ahead(word, head); ahead <= 0) return ahead < 0;
    }
  }

 private:
  friend struct ticket_ring_access;  // tests skip many positions

  template <class U>
  using atomic = typename Atomics::template atomic<U>;

  static constexpr std::size_t words = (sizeof(T) + 7) / 8;
  static constexpr std::uint64_t never = std::uint64_t{1} << 62;  // no head advances that far

  // An entry and the cell with the same index. Both share a cache line, because the ticket of a
  // position is usually in the cell of its entry.
  struct entry {
    // The last filled position of the entry. The low bits, which are the same for all positions of
    // an entry, contain the index of the cell with the ticket. Invariant: the position grows by one
    // lap at a time, and no position is filled before its predecessor.
    atomic<std::uint64_t> word;
    // The cell. Invariant: only the producer that claimed the cell writes to it. A read is valid
    // only if the head has not passed the ticket's position afterwards. Invalid reads may race with
    // a write, so the words are atomic.
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

  struct tail_end {
    // A position not after the first unfilled position. A producer that was suspended may set the
    // value back. The next producer then skips the filled positions, at most one lap.
    atomic<std::uint64_t> position;
    // A head that a producer has loaded. Invariant: not after the head, so if the ring has room
    // according to this value, it has room. Producers load the head itself only if the ring seems
    // full.
    atomic<std::uint64_t> known_head;
  };

  // A cell that a push has claimed.
  struct claim {
    std::uint64_t cell = 0;
    std::uint64_t before = 0;  // value of `free_from_` before the claim
    bool is_made = false;
  };

  [[nodiscard]] bool has_room(std::uint64_t tail, std::uint64_t head) const noexcept {
    return static_cast<std::int64_t>(tail - head) < capacity_;
  }
  [[nodiscard]] std::uint64_t first_of_lap(std::uint64_t position) const noexcept {
    return position & ~mask_;
  }
  // Returns the number of laps from `position` to the last filled position of the entry. The result
  // is negative if the entry was last filled in an earlier lap, and positive if in a later lap.
  [[nodiscard]] std::int64_t laps_ahead(std::uint64_t word, std::uint64_t position) const noexcept {
    return static_cast<std::int64_t>(first_of_lap(word) - first_of_lap(position));
  }
  entry& entry_at(std::uint64_t position) noexcept { return entries_[position & mask_]; }
  const entry& entry_at(std::uint64_t position) const noexcept {
    return entries_[position & mask_];
  }

  // Claims a free cell, preferably the cell of the entry for `tail`. Returns false if no cell is
  // free.
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
  // Finishes a failed push. Frees its cell, and stores the tail so that the next push need not
  // search for it.
  bool give_up(const claim& mine, std::uint64_t tail) noexcept {
    if (mine.is_made) free_from_[mine.cell].store(mine.before, std::memory_order_release);
    tail_.value.position.store(tail, std::memory_order_relaxed);
    return false;
  }

  std::int64_t capacity_;
  std::uint64_t mask_;
  std::vector<entry> entries_;
  // For each cell, the head at which the cell becomes free, or `never` beyond the tail while a push
  // occupies the cell. Invariant: a thread claims a cell by replacing a value that the head has
  // reached. After that, only that thread writes to the cell and changes the value. Stored
  // separately from the entries, so that consumers, which do not need it, do not take its cache
  // lines from producers.
  std::vector<atomic<std::uint64_t>> free_from_;
  own_line<atomic<std::uint64_t>> head_;  // the next position to pop. Invariant: it only grows
  own_line<tail_end> tail_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
