// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The samples of a batch have more values of a ragged field than the batch has capacity for, or
/// one sample is longer than the longest that the dataset has announced. Detected from the lengths,
/// before any sample of the batch is read.
class [[gnu::visibility("default")]] ragged_overflow : public error {
 public:
  /// For `field` in batch `at`: sample `sample` at `position` needs `needed` values, `capacity` are
  /// available; `problem` is the message.
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
  /// The position in the batch of the first sample that does not fit.
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  /// That sample's index in the loader's dataset.
  [[nodiscard]] std::uint64_t sample() const noexcept { return sample_; }
  /// The number of values of the batch up to and including that sample; of that sample alone if it
  /// is too long by itself.
  [[nodiscard]] std::uint64_t needed() const noexcept { return needed_; }
  /// The capacity in values.
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
