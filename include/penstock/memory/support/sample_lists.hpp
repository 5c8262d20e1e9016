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

/// Which samples the batches in a ring of slots have, by their indices. Holds nothing, and does
/// nothing, where no one asks for that; else all its memory is taken at construction. A slot's list
/// is handed from thread to thread as the slot's memory is.
class sample_lists {
 public:
  /// Lists that are off.
  sample_lists() = default;
  /// Lists for `slot_count` slots of batches of at most `batch_size` samples.
  sample_lists(std::size_t slot_count, std::size_t batch_size)
      : batch_size_(batch_size), indices_(slot_count * batch_size), substituted_(slot_count) {
    for (auto& places : substituted_) places.reserve(batch_size);
  }

  /// Whether there are lists.
  [[nodiscard]] bool is_on() const noexcept { return !substituted_.empty(); }

  /// The slot is bound to a new batch.
  void begin_batch(std::size_t slot) noexcept {
    if (is_on()) [[unlikely]]
      substituted_[slot].clear();
  }
  /// The batch in `slot` has the samples `indices` from its place `first` on. Readers of one batch
  /// write different places.
  void note(std::size_t slot, std::size_t first, std::span<const std::uint64_t> indices) noexcept {
    if (!is_on()) [[likely]]
      return;
    std::copy(indices.begin(), indices.end(), all(slot).begin() + offset(first));
  }
  /// At `place` the batch has the sample `index` in place of another. One call for a slot at a
  /// time.
  void note_substitute(std::size_t slot, std::size_t place, std::uint64_t index) noexcept {
    if (!is_on()) return;
    all(slot)[place] = index;
    substituted_[slot].push_back(place);  // has room: once for each place of the batch at most
  }
  /// All samples are read: their substitutes are put in order, however they were read.
  void end_batch(std::size_t slot) noexcept {
    if (is_on()) [[unlikely]]
      std::sort(substituted_[slot].begin(), substituted_[slot].end());
  }
  /// The samples that are gone leave the list, those after them move up.
  void close_gaps(std::size_t slot, std::span<const std::uint8_t> is_gone) noexcept {
    if (!is_on()) return;
    const std::span<std::uint64_t> list = all(slot);
    std::size_t stays = 0;
    for (std::size_t i = 0; i < is_gone.size(); ++i) {
      if (is_gone[i] == 0) list[stays++] = list[i];
    }
  }

  /// What a batch elsewhere has, `slot` has too.
  void take(std::size_t slot, std::span<const std::uint64_t> indices,
            std::span<const std::uint64_t> substituted) noexcept {
    if (!is_on()) [[likely]]
      return;
    note(slot, 0, indices);
    substituted_[slot].assign(substituted.begin(), substituted.end());
  }

  /// The samples of the batch of `size` samples in `slot`, by their places; none where there are no
  /// lists.
  [[nodiscard]] std::span<const std::uint64_t> indices(std::size_t slot,
                                                       std::size_t size) const noexcept {
    if (!is_on()) return {};
    return {indices_.data() + slot * batch_size_, size};
  }
  /// The places that were given to another sample than the order's, ascending.
  [[nodiscard]] std::span<const std::uint64_t> substituted(std::size_t slot) const noexcept {
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
  std::vector<std::uint64_t> indices_;                   // of all slots, one after another
  std::vector<std::vector<std::uint64_t>> substituted_;  // by slot
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
