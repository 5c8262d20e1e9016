// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The cell that announces a batch if batches are delivered in order. The worker that completes
/// batch k writes to the cell k modulo the number of slots, first `slot` and then `word`. Two
/// undelivered batches never share a cell.
struct alignas(cache_line) announcement {
  waitable_counter word;  ///< index of the announced batch plus 1, modulo 2^32
  std::uint32_t slot = 0;
};

/// The phase of a loader. Phases only advance.
enum class loader_phase : std::uint8_t {
  running,
  failed,  ///< no more batches can be read because of an error
  ended,   ///< no more batches can be read because the loader was shut down
};

/// Delivers complete batches from the workers to the single consumer, in order or as they are
/// completed. The worker that completes a batch announces its slot here. `fail` permanently wakes
/// every waiting thread.
class delivery {
 public:
  /// Reserves room for `slot_count` undelivered batches.
  delivery(std::size_t slot_count, bool in_order)
      : in_order_(in_order), announced_(slot_count), finished_(slot_count) {}

  /// Announces that batch `sequence` is complete in `slot`.
  void announce(std::uint64_t sequence, std::uint32_t slot) noexcept {
    if (!in_order_) {
      // The queue has room for all slots. A push fails only while more workers are in `push` than
      // the queue has spare cells, and succeeds after they have finished. After `fail`, no thread
      // takes the slot.
      while (!finished_.try_push(slot) && !finished_.was_closed()) std_atomics::yield();
      return;
    }
    announcement& place = place_of(sequence);
    place.slot = slot;
    place.word.store(static_cast<std::uint32_t>(sequence + 1));
  }

  /// Makes all current and future waits return, because no more batches can be read. Stores the
  /// first error, and returns true if that is `error`. Any thread may call this.
  bool fail(failed_batch error, loader_phase next = loader_phase::failed) noexcept {
    {
      const std::lock_guard lock{failed_mutex_};
      const bool is_first = !failed_;
      if (is_first) failed_ = std::move(error);
      phase_.value.store((std::max)(phase(), next), std::memory_order_release);
      if (!is_first) return false;
    }
    finished_.close();
    for (announcement& place : announced_) place.word.advance();
    return true;
  }
  [[nodiscard]] loader_phase phase() const noexcept {
    return phase_.value.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool has_failed() const noexcept { return phase() != loader_phase::running; }

  /// Returns the error stored by `fail`. Empty before `fail`.
  [[nodiscard]] failed_batch failed() const {
    const std::lock_guard lock{failed_mutex_};
    return failed_;
  }

  /// Returns true if `wait(sequence)` would return immediately. Only the consumer may call this.
  [[nodiscard]] bool is_ready(std::uint64_t sequence) const noexcept {
    if (has_failed()) return true;
    if (!in_order_) return !finished_.was_empty();
    return place_of(sequence).word.load() == static_cast<std::uint32_t>(sequence + 1);
  }

  /// Waits until batch `sequence` is complete, or any batch if batches are unordered. Returns the
  /// slot of the batch, or `std::nullopt` after `fail`. Only the consumer may call this.
  [[nodiscard]] std::optional<std::uint32_t> wait(std::uint64_t sequence) noexcept {
    if (!in_order_) {
      const auto slot = finished_.pop();
      return has_failed() ? std::nullopt : slot;
    }
    const announcement& place = place_of(sequence);
    const auto expected = static_cast<std::uint32_t>(sequence + 1);
    place.word.wait([&](std::uint32_t now) { return now == expected || has_failed(); });
    if (has_failed()) return std::nullopt;
    return place.slot;
  }

 private:
  [[nodiscard]] announcement& place_of(std::uint64_t sequence) noexcept {
    return announced_[sequence % announced_.size()];
  }
  [[nodiscard]] const announcement& place_of(std::uint64_t sequence) const noexcept {
    return announced_[sequence % announced_.size()];
  }

  bool in_order_;
  std::vector<announcement> announced_;  // indexed by sequence modulo the number of slots
  batch_queue<std::uint32_t> finished_;  // used if batches are unordered

  mutable std::mutex failed_mutex_;  // guards `failed_`
  failed_batch failed_;
  // Invariant: advances only under the mutex and after `failed_` is set, so a thread that sees a
  // phase other than `running` finds the error. Every worker reads the phase for each chunk, so its
  // cache line does not contain data that changes for each batch.
  own_line<std::atomic<loader_phase>> phase_{loader_phase::running};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
