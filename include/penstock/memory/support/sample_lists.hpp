// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The indices of the samples of the batches in a ring of slots. Without a request for lists it is
/// off: it allocates nothing and does nothing. Otherwise all its memory is allocated at
/// construction. A slot's list passes from thread to thread together with the slot's memory.
class sample_lists {
 public:
  /// Makes lists that are off.
  sample_lists() = default;
  /// Makes lists for `slot_count` slots of batches of at most `batch_size` samples.
  sample_lists(std::size_t slot_count, std::size_t batch_size)
      : batch_size_(batch_size), indices_(slot_count * batch_size), substituted_(slot_count) {
    for (auto& places : substituted_) places.reserve(batch_size);
  }

  /// Returns true if there are lists.
  [[nodiscard]] bool is_on() const noexcept { return !substituted_.empty(); }

  /// Begins a new batch in `slot`.
  void begin_batch(std::size_t slot) noexcept {
    if (is_on()) [[unlikely]]
      substituted_[slot].clear();
  }
  /// Records that the batch in `slot` has the samples `indices`, starting at its place `first`.
  /// Several threads may record different places of a batch at once.
  void note(std::size_t slot, std::size_t first, std::span<const std::uint64_t> indices) noexcept {
    if (!is_on()) [[likely]]
      return;
    std::copy(indices.begin(), indices.end(), all(slot).begin() + offset(first));
  }
  /// Records that the batch has the sample `index` as a substitute at `place`. One call for a slot
  /// at a time.
  void record_replacement(std::size_t slot, std::size_t place, std::uint64_t index) noexcept {
    if (!is_on()) return;
    all(slot)[place] = index;
    substituted_[slot].push_back(place);  // has room: at most one call for each place of the batch
  }
  /// Sorts the places of the substitutes after all samples are read, because they are read in any
  /// order.
  void end_batch(std::size_t slot) noexcept {
    if (is_on()) [[unlikely]]
      std::sort(substituted_[slot].begin(), substituted_[slot].end());
  }
  /// Removes the samples that are gone from the list, and moves later samples up.
  void close_gaps(std::size_t slot, std::span<const std::uint8_t> is_gone) noexcept {
    if (!is_on()) return;
    const std::span<std::uint64_t> list = all(slot);
    std::size_t stays = 0;
    for (std::size_t i = 0; i < is_gone.size(); ++i) {
      if (is_gone[i] == 0) list[stays++] = list[i];
    }
  }

  /// Copies the lists of a batch elsewhere to `slot`.
  void take(std::size_t slot, std::span<const std::uint64_t> indices,
            std::span<const std::uint64_t> replaced) noexcept {
    if (!is_on()) [[likely]]
      return;
    note(slot, 0, indices);
    substituted_[slot].assign(replaced.begin(), replaced.end());
  }

  /// The samples of the batch of `size` samples in `slot`, by their places. Empty if lists are off.
  [[nodiscard]] std::span<const std::uint64_t> indices(std::size_t slot,
                                                       std::size_t size) const noexcept {
    if (!is_on()) return {};
    return {indices_.data() + slot * batch_size_, size};
  }
  /// The places in the batch that have a substitute, in ascending order. Empty if lists are off.
  [[nodiscard]] std::span<const std::uint64_t> replaced(std::size_t slot) const noexcept {
    if (!is_on()) return {};
    return substituted_[slot];
  }

 private:
  static std::ptrdiff_t offset(std::size_t place) noexcept {
    return static_cast<std::ptrdiff_t>(place);
  }
  [[nodiscard]] std::span<std::uint64_t> all(std::size_t slot) noexcept {
    return {indices_.data() + slot * batch_size_, batch_size_};
  }

  std::size_t batch_size_ = 0;
  std::vector<std::uint64_t> indices_;                   // of all slots, in the order of slots
  std::vector<std::vector<std::uint64_t>> substituted_;  // by slot
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
