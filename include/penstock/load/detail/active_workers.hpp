// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The set of active workers. A worker is active if its index is less than the active count. Each
/// inactive worker sleeps on a separate word, so that activating a worker wakes only that worker.
///
/// A worker checks before each claim whether it is active, and does not hold a claim while it
/// sleeps. Before it sleeps, it must pass on the wake-ups that it may have received (see
/// `claim_cursor::pass_on`).
template <class Atomics = std_atomics>
class basic_active_workers {
 public:
  /// Creates a set of `workers` workers, of which the first `open` are active.
  basic_active_workers(std::size_t workers, std::size_t open)
      : open_{static_cast<std::uint32_t>(open)}, sleepers_(workers) {}

  /// Returns true if this worker is active. Any thread may call this.
  [[nodiscard]] bool is_active(std::size_t worker) const noexcept {
    return worker < open_.value.load(std::memory_order_relaxed);
  }

  /// Sleeps until the worker is active or `close` was called.
  void wait(std::size_t worker) const noexcept {
    // Invariant: `open_` and `has_ended_` are written before `turn`, on which the worker sleeps,
    // advances. Acquire ordering: the worker sees the earlier writes of the thread that activated
    // it.
    const auto is_wanted = [&](std::uint32_t) {
      return worker < open_.value.load(std::memory_order_acquire) ||
             has_ended_.load(std::memory_order_acquire);
    };
    sleepers_[worker].turn.wait(is_wanted, false);
  }

  /// Makes the first `count` workers active, and wakes those of them that were inactive. Only one
  /// thread at a time may call this. Costs one system call per sleeping worker.
  void open(std::size_t count) noexcept {
    const std::uint32_t before = open_.value.load(std::memory_order_relaxed);
    open_.value.store(static_cast<std::uint32_t>(count), std::memory_order_release);
    for (std::size_t worker = before; worker < count && worker < sleepers_.size(); ++worker) {
      sleepers_[worker].turn.advance();
    }
  }

  /// Permanently wakes all workers after a stop request. Any thread may call this.
  void close() noexcept {
    has_ended_.store(true, std::memory_order_release);
    for (auto& one : sleepers_) one.turn.advance();
  }

 private:
  struct alignas(cache_line) sleeper {
    basic_waitable_counter<Atomics> turn;
  };
  template <class T>
  using atomic = typename Atomics::template atomic<T>;

  // Every worker reads the count for each claim, and the tuner writes it once per move. Relaxed in
  // `is_active`, because a worker that misses a move makes an extra claim or sleeps, and then
  // checks again.
  own_line<atomic<std::uint32_t>> open_;
  atomic<bool> has_ended_{false};  // never reset to false
  std::vector<sleeper> sleepers_;  // indexed by worker
};

/// Puts an inactive worker without a claim to sleep until it is active. If the worker was woken for
/// a chunk, passes the wake-up on, so that another worker claims the chunk from `cursor`. Not
/// inlined, because workers are inactive only with `automatic`. `waits` times the wait.
template <class Active, class Cursor, class Waits>
[[gnu::noinline]] void park(Active& active, std::size_t worker, Cursor& cursor,
                            Waits& waits) noexcept {
  cursor.pass_on();
  [[maybe_unused]] const auto timed = waits.while_inactive();
  active.wait(worker);
}

/// `basic_active_workers` with the atomics of the standard library.
using active_workers = basic_active_workers<>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
