// SPDX-License-Identifier: BSL-1.0
#pragma once

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

/// Where a batch is announced in order: the worker that completes batch k writes the slot, then the
/// word, of place k modulo the number of slots. Two undelivered batches never share a place.
struct alignas(cache_line) announcement {
  waitable_counter word;  ///< k + 1, modulo 2^32
  std::uint32_t slot = 0;
};

/// Where complete batches go from the workers to the one consumer: in order, or as they are
/// completed. The worker that completes a batch announces its slot here. `fail` wakes every waiter,
/// permanently.
class delivery {
 public:
  /// For as many undelivered batches as there are slots.
  delivery(std::size_t slot_count, bool in_order)
      : in_order_(in_order), announced_(slot_count), finished_(slot_count) {}

  /// Batch `sequence` lies complete in `slot`.
  void announce(std::uint64_t sequence, std::uint32_t slot) noexcept {
    if (!in_order_) {
      // There is room for all slots: a push that is refused has met more workers inside one than
      // there are spare cells, and goes in once they are through. After `fail` no one takes it.
      while (!finished_.try_push(slot) && !finished_.was_closed()) std_atomics::yield();
      return;
    }
    announcement& place = place_of(sequence);
    place.slot = slot;
    place.word.store(static_cast<std::uint32_t>(sequence + 1));
  }

  /// Nothing can be read any more: every wait returns, now and later. The first error is kept;
  /// whether it is this one. From any thread.
  bool fail(failed_batch error) noexcept {
    {
      const std::lock_guard lock{failed_mutex_};
      if (failed_) return false;
      failed_ = std::move(error);
    }
    has_failed_.value.store(true, std::memory_order_release);
    finished_.close();
    for (announcement& place : announced_) place.word.advance();
    return true;
  }
  [[nodiscard]] bool has_failed() const noexcept {
    return has_failed_.value.load(std::memory_order_acquire);
  }

  /// The error that ended the range; set by `fail`.
  [[nodiscard]] failed_batch failed() const {
    const std::lock_guard lock{failed_mutex_};
    return failed_;
  }

  /// Consumer: whether `wait(sequence)` would return at once.
  [[nodiscard]] bool is_ready(std::uint64_t sequence) const noexcept {
    if (!in_order_) return !finished_.was_empty();
    return place_of(sequence).word.load() == static_cast<std::uint32_t>(sequence + 1);
  }

  /// Consumer: the slot of batch `sequence`, or of any where the order is free, once it is
  /// complete; `std::nullopt` after `fail`.
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
  std::vector<announcement> announced_;  // by sequence modulo slots
  batch_queue<std::uint32_t> finished_;  // where the order is free

  mutable std::mutex failed_mutex_;  // guards the next
  failed_batch failed_;
  // Invariant: set after failed_, so a thread that sees it finds the error; never unset. Every
  // worker reads it for each chunk: nothing on its cache line is written batch by batch.
  own_line<std::atomic<bool>> has_failed_{false};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
