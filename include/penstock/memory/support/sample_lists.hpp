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

/// The sample indices of batches in a slot ring. If lists are disabled, the object allocates
/// nothing and all functions do nothing. Otherwise the constructor allocates all memory. The list
/// of a slot is transferred between threads together with the slot memory, and moves with the batch
/// to a slot of the next ring.
class sample_lists {
 public:
  /// Creates an object with disabled lists.
  sample_lists() = default;
  /// Creates lists for `slot_count` slots of batches of at most `batch_size` samples.
  sample_lists(std::size_t slot_count, std::size_t batch_size)
      : batch_size_(batch_size), lists_(slot_count) {
    for (list& one : lists_) {
      one.indices.resize(batch_size);
      one.replaced.reserve(batch_size);
    }
  }

  /// Returns true if lists are enabled.
  [[nodiscard]] bool is_on() const noexcept { return !lists_.empty(); }

  /// Begins a new batch in `slot`.
  void begin_batch(std::size_t slot) noexcept {
    if (is_on()) [[unlikely]]
      lists_[slot].replaced.clear();
  }
  /// Records `indices` as the samples starting at position `first` of the batch in `slot`. Several
  /// threads may record different positions of a batch concurrently.
  void record(std::size_t slot, std::size_t first,
              std::span<const std::uint64_t> indices) noexcept {
    if (!is_on()) [[likely]]
      return;
    std::copy(indices.begin(), indices.end(), lists_[slot].indices.begin() + offset(first));
  }
  /// Records that sample `index` replaces the sample at position `place` of the batch. Calls for
  /// the same slot must not overlap.
  void record_replacement(std::size_t slot, std::size_t place, std::uint64_t index) noexcept {
    if (!is_on()) return;
    lists_[slot].indices[place] = index;
    // The list has enough capacity, because each position is recorded at most once.
    lists_[slot].replaced.push_back(place);
  }
  /// Sorts the positions of the replaced samples, which may have been recorded in any order. Called
  /// when all samples are read.
  void end_batch(std::size_t slot) noexcept {
    if (is_on()) [[unlikely]]
      std::sort(lists_[slot].replaced.begin(), lists_[slot].replaced.end());
  }
  /// Removes the samples marked in `is_gone` from the list, and closes the gaps.
  void close_gaps(std::size_t slot, std::span<const std::uint8_t> is_gone) noexcept {
    if (!is_on()) return;
    std::vector<std::uint64_t>& indices = lists_[slot].indices;
    std::size_t stays = 0;
    for (std::size_t i = 0; i < is_gone.size(); ++i) {
      if (is_gone[i] == 0) indices[stays++] = indices[i];
    }
  }

  /// Copies the lists of a batch that is stored outside these slots to `slot`.
  void take(std::size_t slot, std::span<const std::uint64_t> indices,
            std::span<const std::uint64_t> replaced) noexcept {
    if (!is_on()) [[likely]]
      return;
    record(slot, 0, indices);
    lists_[slot].replaced.assign(replaced.begin(), replaced.end());
  }
  /// Moves the lists of a batch with `size` samples from slot `other_slot` of `other` to `slot`.
  /// The slots exchange their memory, and the list of replaced samples in `other_slot` is then
  /// empty. If the slots have different capacities, copies the lists.
  void take(std::size_t slot, sample_lists& other, std::size_t other_slot,
            std::size_t size) noexcept {
    if (!is_on()) [[likely]]
      return;
    begin_batch(slot);
    if (batch_size_ == other.batch_size_) return std::swap(lists_[slot], other.lists_[other_slot]);
    take(slot, other.indices(other_slot, size), other.replaced(other_slot));
  }

  /// Returns the sample indices of the batch of `size` samples in `slot`, indexed by position.
  /// Empty if lists are disabled.
  [[nodiscard]] std::span<const std::uint64_t> indices(std::size_t slot,
                                                       std::size_t size) const noexcept {
    if (!is_on()) return {};
    return {lists_[slot].indices.data(), size};
  }
  /// Returns the positions of the replaced samples in the batch, in ascending order. Empty if lists
  /// are disabled.
  [[nodiscard]] std::span<const std::uint64_t> replaced(std::size_t slot) const noexcept {
    if (!is_on()) return {};
    return lists_[slot].replaced;
  }

 private:
  struct list {
    std::vector<std::uint64_t> indices;   // indexed by position
    std::vector<std::uint64_t> replaced;  // positions
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
