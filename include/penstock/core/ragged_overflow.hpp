// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The samples of a batch have more values of a ragged field than the batch has room for, or one of
/// them has more than the dataset's longest sample has. Known from the lengths, before anything of
/// the batch is read.
class [[gnu::visibility("default")]] ragged_overflow : public error {
 public:
  /// Of the field `field`, in batch `at`: sample `sample` at place `position` needs `needed` values
  /// where there is room for `capacity`; `problem` says it in words.
  ragged_overflow(std::string field, const batch_position& at, std::uint64_t position,
                  std::uint64_t sample, std::uint64_t needed, std::uint64_t capacity,
                  const std::string& problem)
      : error("ragged_overflow: field \"" + field + "\", epoch " + std::to_string(at.epoch) +
              ", batch " + std::to_string(at.batch) + ", sample " + std::to_string(sample) +
              " (position " + std::to_string(position) + " of the batch): " + problem),
        field_(std::move(field)),
        at_(at),
        position_(position),
        sample_(sample),
        needed_(needed),
        capacity_(capacity) {}

  /// The field's name.
  [[nodiscard]] const std::string& field() const noexcept { return field_; }
  /// The batch.
  [[nodiscard]] const batch_position& at() const noexcept { return at_; }
  /// The place in the batch of the first sample that has no room.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  /// That sample's index in the loader's dataset.
  [[nodiscard]] std::uint64_t sample() const noexcept { return sample_; }
  /// How many values the batch has up to that sample, its own counted; where it is longer than the
  /// longest, its own alone.
  [[nodiscard]] std::uint64_t needed() const noexcept { return needed_; }
  /// How many there is room for.
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  std::string field_;
  batch_position at_;
  std::uint64_t position_;
  std::uint64_t sample_;
  std::uint64_t needed_;
  std::uint64_t capacity_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
