// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/load/options.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The result of a claim by a worker.
struct claim {
  /// The possible next tasks of a worker.
  enum class kind {
    work,  ///< read chunk `chunk` of the batch in `slot`
    open,  ///< all chunks are claimed, and this worker alone opens the next batch
    wait,  ///< wait until another worker has opened the next batch
  };
  /// Next task of the worker.
  kind what;
  std::uint32_t batch;  ///< batch index modulo 2^32
  /// Host slot of the batch.
  std::uint32_t slot;
  /// Index of the chunk in the batch.
  std::uint32_t chunk;
};

/// Distributes the chunks of the oldest batch that has unclaimed chunks. A claim is a single atomic
/// operation.
///
/// The chunk indices of a batch end at `chunks`. A batch with fewer chunks starts at a higher
/// index, so the end is the same for all batches. The worker whose claim follows the last chunk is
/// the opener. The opener binds a slot to the next batch and calls `publish`, which also claims the
/// first chunk. The other workers wait for `publish`. Therefore batches are bound in order, one at
/// a time, and the oldest unfinished batch always has its slot. Initially, batch -1 counts as fully
/// claimed, so the first claimant opens batch 0.
///
/// The claimed word contains all data of a claim. Therefore a worker that is preempted between its
/// claim and its work cannot read data that a later batch has overwritten.
template <class Atomics = std_atomics>
class claim_cursor {
 public:
  /// The number of consecutive unsuccessful claims after which a worker no longer yields. Smaller
  /// values cost speed if there are more workers than cores and all are needed occasionally. (With
  /// 4 workers on 2 cores, a value of 16 cost a tenth of the speed, and 128 cost nothing.) Larger
  /// values cost processor time before surplus workers sleep.
  static constexpr std::uint32_t patience = 24;

  /// Creates a cursor for batches of at most `chunks` chunks.
  explicit claim_cursor(std::uint32_t chunks) noexcept
      : chunks_(chunks), cursor_(word(~std::uint32_t{0}, 0, chunks)) {}

  /// Claims the next task. Never waits.
  [[nodiscard]] claim next() noexcept {
    // Uses acq_rel ordering: a claim of batch b continues the release sequence of the store that
    // published b, so it sees the slot that the opener has bound.
    const std::uint64_t value = cursor_.fetch_add(1, std::memory_order_acq_rel);
    const auto chunk = static_cast<std::uint32_t>(value & ((1U << claim_chunk_bits) - 1));
    const auto slot = static_cast<std::uint32_t>(value >> claim_chunk_bits) & (max_slots - 1);
    const auto batch = static_cast<std::uint32_t>(value >> 32);
    const auto what = chunk < chunks_    ? claim::kind::work
                      : chunk == chunks_ ? claim::kind::open
                                         : claim::kind::wait;
    return {what, batch, slot, chunk};
  }

  /// Publishes that batch `batch` is bound to `slot` and has the chunks starting at `first`, which
  /// must be less than `chunks`. The caller claims chunk `first`. Called by the opener.
  void publish(std::uint32_t batch, std::uint32_t slot, std::uint32_t first = 0) noexcept {
    cursor_.store(word(batch, slot, first + 1), std::memory_order_release);
    // Wakes one worker for each remaining chunk, and one worker to open the next batch, because
    // more workers would find no work. No needed worker stays asleep. A worker that called
    // `wait_past` with an older batch continues. A worker that called it with this batch did so
    // after the store, and has seen that all chunks of this batch are claimed.
    changed_.advance_waking(chunks_ - first);
  }

  /// Waits until a batch after `batch` is open, or `wake` was called.
  ///
  /// Reads the cursor itself, because an opener may be delayed between the two writes of `publish`
  /// while others open later batches, so `changed_` shows only that something has changed. If the
  /// function returned before the cursor moved, the caller would claim repeatedly until the chunk
  /// counter overflows into the slot bits.
  ///
  /// `idle_spins` is the number of consecutive claims that only led to this wait. After `patience`
  /// such claims, a surplus worker sleeps without yielding, because many workers that yield to each
  /// other would never sleep.
  void wait_past(std::uint32_t batch, std::uint32_t idle_spins = 0) const noexcept {
    const auto is_past = [this, batch](std::uint32_t) {
      const auto now = static_cast<std::uint32_t>(cursor_.load(std::memory_order_acquire) >> 32);
      return now != batch || ended_.load(std::memory_order_acquire);
    };
    changed_.wait(is_past, idle_spins < patience);
  }

  /// Wakes all waiting workers, which check the cursor again. Called by a worker that may have been
  /// woken for a chunk and will not make a claim.
  void pass_on() noexcept { changed_.advance(); }

  /// Wakes all current and future waiting workers, even if another batch is published later.
  void wake() noexcept {
    ended_.store(true, std::memory_order_release);
    changed_.advance();
  }

 private:
  static constexpr std::uint64_t word(std::uint32_t batch, std::uint32_t slot,
                                      std::uint32_t chunk) noexcept {
    return (std::uint64_t{batch} << 32) | (std::uint64_t{slot} << claim_chunk_bits) | chunk;
  }

  std::uint32_t chunks_;
  alignas(cache_line) typename Atomics::template atomic<std::uint64_t> cursor_;
  alignas(cache_line) basic_waitable_counter<Atomics> changed_;
  typename Atomics::template atomic<bool> ended_{false};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
