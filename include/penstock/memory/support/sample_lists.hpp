// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The sample indices of the batches in a ring of slots. If no lists are requested, they are off:
/// nothing is allocated, and all functions do nothing. Otherwise the constructor allocates all
/// memory. A slot's list passes from thread to thread together with the slot's memory, and moves
/// with the batch to a slot of the next ring.
class sample_lists {
 public:
  /// Makes an object without lists, whose functions do nothing.
  sample_lists() = default;
  /// Makes lists for `slot_count` slots of batches of at most `batch_size` samples.
  sample_lists(std::size_t slot_count, std::size_t batch_size)
      : batch_size_(batch_size), lists_(slot_count) {
    for (list& one : lists_) {
      one.indices.resize(batch_size);
      one.replaced.reserve(batch_size);
    }
  }

  /// Returns true if there are lists.
  [[nodiscard]] bool is_on() const noexcept { return !lists_.empty(); }

  /// Begins a new batch in `slot`.
  void begin_batch(std::size_t slot) noexcept {
    if (is_on()) [[unlikely]]
      lists_[slot].replaced.clear();
  }
  /// Records that the samples at the places `first` and after of the batch in `slot` are `indices`.
  /// Several threads may record different places of a batch at once.
  void record(std::size_t slot, std::size_t first,
              std::span<const std::uint64_t> indices) noexcept {
    if (!is_on()) [[likely]]
      return;
    std::copy(indices.begin(), indices.end(), lists_[slot].indices.begin() + offset(first));
  }
  /// Records that sample `index` replaces the sample at `place` of the batch. Calls for the same
  /// slot must not overlap.
  void record_replacement(std::size_t slot, std::size_t place, std::uint64_t index) noexcept {
    if (!is_on()) return;
    lists_[slot].indices[place] = index;
    lists_[slot].replaced.push_back(place);  // has room: at most once for each place
  }
  /// Sorts the places of the substitutes, which may have been recorded in any order. Called when
  /// all samples are read.
  void end_batch(std::size_t slot) noexcept {
    if (is_on()) [[unlikely]]
      std::sort(lists_[slot].replaced.begin(), lists_[slot].replaced.end());
  }
  /// Removes the samples marked in `is_gone` from the list, and moves later samples up.
  void close_gaps(std::size_t slot, std::span<const std::uint8_t> is_gone) noexcept {
    if (!is_on()) return;
    std::vector<std::uint64_t>& indices = lists_[slot].indices;
    std::size_t stays = 0;
    for (std::size_t i = 0; i < is_gone.size(); ++i) {
      if (is_gone[i] == 0) indices[stays++] = indices[i];
    }
  }

  /// Copies to `slot` the lists of a batch that is stored outside these slots.
  void take(std::size_t slot, std::span<const std::uint64_t> indices,
            std::span<const std::uint64_t> replaced) noexcept {
    if (!is_on()) [[likely]]
      return;
    record(slot, 0, indices);
    lists_[slot].replaced.assign(replaced.begin(), replaced.end());
  }
  /// Moves the lists of a batch of `size` samples from slot `other_slot` of `other` to `slot`. The
  /// slots exchange their memory, and `other_slot` then has no substitutes. If the slots have room
  /// for different numbers of samples, copies the lists.
  void take(std::size_t slot, sample_lists& other, std::size_t other_slot,
            std::size_t size) noexcept {
    if (!is_on()) [[likely]]
      return;
    begin_batch(slot);
    if (batch_size_ == other.batch_size_) return std::swap(lists_[slot], other.lists_[other_slot]);
    take(slot, other.indices(other_slot, size), other.replaced(other_slot));
  }

  /// Returns the sample indices of the batch of `size` samples in `slot`, by place. Empty if lists
  /// are off.
  [[nodiscard]] std::span<const std::uint64_t> indices(std::size_t slot,
                                                       std::size_t size) const noexcept {
    if (!is_on()) return {};
    return {lists_[slot].indices.data(), size};
  }
  /// Returns the places in the batch that have a substitute, in ascending order. Empty if lists are
  /// off.
  [[nodiscard]] std::span<const std::uint64_t> replaced(std::size_t slot) const noexcept {
    if (!is_on()) return {};
    return lists_[slot].replaced;
  }

 private:
  struct list {
    std::vector<std::uint64_t> indices;   // indexed by place
    std::vector<std::uint64_t> replaced;  // places
  };

  static std::ptrdiff_t offset(std::size_t place) noexcept {
    return static_cast<std::ptrdiff_t>(place);
  }

  std::size_t batch_size_ = 0;
  std::vector<list> lists_;  // indexed by slot
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
