// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  /// Opens the files, see `parquet_file`. Throws `file_unreadable`, `file_corrupt`, and `option_error` where there is
  /// no path.
  explicit parquet_groups(const std::vector<std::string>& paths, bool verify = false) {
    if (paths.empty()) throw option_error("paths", "must not be empty");
    files_.reserve(paths.size());
    for (const std::string& path : paths) {
      const parquet_file& file = files_.emplace_back(path, verify);
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

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
