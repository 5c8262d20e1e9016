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

/// Which workers take part: those whose number is below the active count. The others sleep, each on
/// its own word, so that activating a worker wakes that one only.
///
/// A worker looks before each claim and holds none while it sleeps. Wake-ups that it was given for
/// its work it must pass on before: see `claim_cursor::pass_on`.
template <class Atomics = std_atomics>
class basic_active_workers {
 public:
  /// For `workers` workers, of whom the first `open` take part.
  basic_active_workers(std::size_t workers, std::size_t open)
      : open_{static_cast<std::uint32_t>(open)}, sleepers_(workers) {}

  /// Whether this worker takes part. From any thread.
  [[nodiscard]] bool is_open(std::size_t worker) const noexcept {
    return worker < open_.value.load(std::memory_order_relaxed);
  }

  /// Sleeps until the worker is active, or `close` was called.
  void wait(std::size_t worker) const noexcept {
    // Invariant: each change of what is looked at comes before a step of this worker's number,
    // which is what it sleeps on. Acquire: what the opening thread did before is seen.
    const auto is_wanted = [&](std::uint32_t) {
      return worker < open_.value.load(std::memory_order_acquire) ||
             has_ended_.load(std::memory_order_acquire);
    };
    sleepers_[worker].turn.wait(is_wanted, false);
  }

  /// The first `count` workers are active from now on; wakes those that were not. One thread at a
  /// time. A system call for each that sleeps.
  void open(std::size_t count) noexcept {
    const std::uint32_t before = open_.value.load(std::memory_order_relaxed);
    open_.value.store(static_cast<std::uint32_t>(count), std::memory_order_release);
    for (std::size_t worker = before; worker < count && worker < sleepers_.size(); ++worker) {
      sleepers_[worker].turn.advance();
    }
  }

  /// Wakes all workers, permanently: after a stop request. From any thread.
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

  // Every worker reads it for each claim, and it is written once a move. Relaxed there: a worker
  // that misses a move makes one claim more or sleeps, and then looks again.
  own_line<atomic<std::uint32_t>> open_;
  atomic<bool> has_ended_{false};  // never unset
  std::vector<sleeper> sleepers_;  // by worker
};

/// A worker that is not needed, and holds nothing, sleeps until it is active. It may have been
/// woken for a chunk that another one has to claim from `cursor` now. Not inlined: it does not
/// happen without `automatic`. `waits` times the wait.
template <class Active, class Cursor, class Waits>
[[gnu::noinline]] void leave_until_open(Active& active, std::size_t worker, Cursor& cursor,
                                        Waits& waits) noexcept {
  cursor.pass_on();
  [[maybe_unused]] const auto timed = waits.while_inactive();
  active.wait(worker);
}

/// The active workers of the library's own loaders.
using active_workers = basic_active_workers<>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
