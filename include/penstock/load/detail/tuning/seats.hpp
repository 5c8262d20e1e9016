// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/core/support/cache_line.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// How many workers take part: those whose number is below the count of open seats. The others
/// sleep, each on a word of its own, so that opening a seat wakes its worker and no other one.
///
/// A worker looks before each claim and holds none while it sleeps. Wake-ups that it was given for
/// its work it must pass on before: see `claim_cursor::pass_on`.
template <class Atomics = std_atomics>
class basic_seats {
 public:
  /// For `workers` workers, of whom the first `open` take part.
  basic_seats(std::size_t workers, std::size_t open)
      : open_{static_cast<std::uint32_t>(open)}, seats_(workers) {}

  /// Whether this worker takes part. From any thread.
  [[nodiscard]] bool is_open(std::size_t worker) const noexcept {
    return worker < open_.value.load(std::memory_order_relaxed);
  }

  /// The worker sleeps until its seat is open, or `close` was called.
  void wait(std::size_t worker) const noexcept {
    // Invariant: each change of what is looked at comes before a step of this worker's number,
    // which is what it sleeps on. Acquire: what the opening thread did before is seen.
    const auto is_wanted = [&](std::uint32_t) {
      return worker < open_.value.load(std::memory_order_acquire) ||
             has_ended_.load(std::memory_order_acquire);
    };
    seats_[worker].turn.wait(is_wanted, false);
  }

  /// The first `count` seats are open from now on; wakes those whose are now and were not. One
  /// thread at a time. A system call for each that sleeps.
  void open(std::size_t count) noexcept {
    const std::uint32_t before = open_.value.load(std::memory_order_relaxed);
    open_.value.store(static_cast<std::uint32_t>(count), std::memory_order_release);
    for (std::size_t worker = before; worker < count && worker < seats_.size(); ++worker) {
      seats_[worker].turn.advance();
    }
  }

  /// Wakes all workers, permanently: after a stop request. From any thread.
  void close() noexcept {
    has_ended_.store(true, std::memory_order_release);
    for (auto& one : seats_) one.turn.advance();
  }

 private:
  struct alignas(cache_line) seat {
    basic_waitable_counter<Atomics> turn;
  };
  template <class T>
  using atomic = typename Atomics::template atomic<T>;

  // Every worker reads it for each claim, and it is written once a move. Relaxed there: a worker
  // that misses a move makes one claim more or sleeps, and then looks again.
  own_line<atomic<std::uint32_t>> open_;
  atomic<bool> has_ended_{false};  // never unset
  std::vector<seat> seats_;        // by worker
};

/// A worker that is not needed, and holds nothing, sleeps until its seat is open. It may have been
/// woken for a run that another one has to claim from `cursor` now. Not inlined: it does not happen
/// without `automatic`. `waits` times the wait.
template <class Seats, class Cursor, class Waits>
[[gnu::noinline]] void leave_until_open(Seats& seats, std::size_t worker, Cursor& cursor,
                                        Waits& waits) noexcept {
  cursor.pass_on();
  [[maybe_unused]] const auto timed = waits.for_seat();
  seats.wait(worker);
}

/// The seats of the library's own loaders.
using seats = basic_seats<>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
