// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock_ext/table/parquet/detail/parquet_file.hpp>
#include <penstock_ext/table/parquet/detail/parquet_groups.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What of Parquet files is read next: the system is asked to have the columns of those row groups
/// in memory by then. Decoding them is left to their readers. From any thread.
class parquet_ahead {
 public:
  /// For the row groups of `all`, and of each file the columns that are read; refers to both.
  /// Places that can't be are left alone: decoding refuses them.
  parquet_ahead(const parquet_groups& all, const std::vector<std::vector<std::size_t>>& columns)
      : all_(&all), columns_(&columns), is_told_(all.groups().size()) {
    for (const parquet_group& one : all.groups()) {
      std::uint64_t bytes = 0;
      for (const parquet_chunk& chunk : chunks_of(one)) bytes += chunk.bytes;
      row_bytes_.push_back(bytes / one.rows + (bytes % one.rows != 0 ? 1 : 0));
    }
  }

  /// Asks for the row groups of the rows `indices` that were not asked for since they were read
  /// last; rows out of range are left alone.
  void will_read(std::span<const std::uint64_t> indices) const noexcept {
    for (const std::uint64_t index : indices) {
      if (index >= all_->size()) continue;
      const std::size_t number = all_->group_of(index);
      // Relaxed: hints alone depend on it.
      if (is_told_[number].exchange(true, std::memory_order_relaxed)) continue;
      try {
        const parquet_group& group = all_->groups()[number];
        for (const parquet_chunk& chunk : chunks_of(group)) {
          all_->file_of(group).prefetch(chunk);
        }
      } catch (...) {
        // Without memory it is read when it is needed.
      }
    }
  }
  /// Row group `number` is read, so that it may be asked for again.
  void note_read(std::size_t number) const noexcept {
    if (is_told_[number].load(std::memory_order_relaxed)) {
      is_told_[number].store(false, std::memory_order_relaxed);
    }
  }
  /// The share of row `index` in the bytes of its row group in the file; 0 for one out of range.
  [[nodiscard]] std::uint64_t stored_bytes(std::uint64_t index) const noexcept {
    return index < all_->size() ? row_bytes_[all_->group_of(index)] : 0;
  }

 private:
  [[nodiscard]] std::vector<parquet_chunk> chunks_of(const parquet_group& group) const {
    return all_->file_of(group).chunks(group.number, (*columns_)[group.file]);
  }

  const parquet_groups* all_;
  const std::vector<std::vector<std::size_t>>* columns_;
  std::vector<std::uint64_t> row_bytes_;            // of each group
  mutable std::vector<std::atomic<bool>> is_told_;  // and not read since
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
