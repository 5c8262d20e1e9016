// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/table/parquet/detail/parquet_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The row groups of several Parquet files, whose rows are numbered through.
class parquet_groups {
 public:
  /// Opens the files, see `parquet_options`. Throws `file_unreadable`, `file_corrupt`, and
  /// `option_error` where there is no path.
  explicit parquet_groups(const std::vector<std::string>& paths, bool verify = false,
                          bool direct = false) {
    if (paths.empty()) throw option_error("paths", "must not be empty");
    files_.reserve(paths.size());
    for (const std::string& path : paths) {
      const parquet_file& file = files_.emplace_back(path, verify, direct);
      std::uint64_t first_row = 0;
      for (int number = 0; number < file.groups(); ++number) {
        const std::uint64_t rows = file.rows(number);
        if (rows == 0) continue;
        if (rows > most_rows - size()) {
          throw file_corrupt(path, 0, "less than 2^62 rows, with those of the files before",
                             std::to_string(rows) + " in row group " + std::to_string(number));
        }
        groups_.push_back({files_.size() - 1, number, rows, first_row});
        ends_.push_back(size() + rows);
        block_ = (std::max)(block_, rows);
        first_row += rows;
      }
    }
  }

  [[nodiscard]] const std::vector<parquet_file>& files() const noexcept { return files_; }
  [[nodiscard]] const std::vector<parquet_group>& groups() const noexcept { return groups_; }
  /// The file of a group.
  [[nodiscard]] const parquet_file& file_of(const parquet_group& group) const noexcept {
    return files_[group.file];
  }
  /// How many rows all have.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  /// How many rows the largest group has, 1 at least.
  [[nodiscard]] std::uint64_t block() const noexcept { return block_; }
  /// The group of row `index`, below `size()`. O(log groups).
  [[nodiscard]] std::size_t group_of(std::uint64_t index) const noexcept {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) -
                                    ends_.begin());
  }
  /// The number of the first row of group `number`, over all files.
  [[nodiscard]] std::uint64_t first_row(std::size_t number) const noexcept {
    return number == 0 ? 0 : ends_[number - 1];
  }

 private:
  // So that what is counted of them has room.
  static constexpr std::uint64_t most_rows = (std::uint64_t{1} << 62U) - 1;

  std::vector<parquet_file> files_;
  std::vector<parquet_group> groups_;
  std::vector<std::uint64_t> ends_;  // of the groups, in rows from the first one's start
  std::uint64_t block_ = 1;
};

/// What of Parquet files is read next: the system is asked to have the columns of those row groups
/// in memory by then. Decoding them is left to their readers. From any thread.
class parquet_ahead {
 public:
  /// For the row groups of `all`, and of each file the leaves that are read; refers to both.
  /// Places that can't be are left alone: decoding refuses them.
  parquet_ahead(const parquet_groups& all, const std::vector<std::vector<int>>& leaves)
      : all_(&all), leaves_(&leaves), is_told_(all.groups().size()) {
    for (const parquet_group& one : all.groups()) {
      std::uint64_t bytes = 0;
      const auto& file = all.file_of(one);
      for (const auto& chunk : file.chunks(one.number, leaves[one.file])) bytes += chunk.bytes;
      row_bytes_.push_back(bytes / one.rows + (bytes % one.rows != 0 ? 1 : 0));
    }
  }

  /// Asks for the row groups of the rows `indices` that were not asked for since they were read
  /// last; rows out of range are left alone.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    for (const std::uint64_t index : indices) {
      if (index >= all_->size()) continue;
      const std::size_t number = all_->group_of(index);
      // Relaxed: hints alone depend on it.
      if (is_told_[number].exchange(true, std::memory_order_relaxed)) continue;
      try {
        const parquet_group& group = all_->groups()[number];
        all_->file_of(group).prefetch(group.number, (*leaves_)[group.file]);
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
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    return index < all_->size() ? row_bytes_[all_->group_of(index)] : 0;
  }

 private:
  const parquet_groups* all_;
  const std::vector<std::vector<int>>* leaves_;
  std::vector<std::uint64_t> row_bytes_;            // of each group
  mutable std::vector<std::atomic<bool>> is_told_;  // and not read since
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
