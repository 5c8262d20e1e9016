// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/detail/arrow_check.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/detail/column_plan.hpp>
#include <penstock_ext/table/detail/column_rows.hpp>
#include <penstock_ext/table/detail/null_bits.hpp>
#include <penstock_ext/table/table_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A batch of a table.
struct batch_place {
  const ArrowArray& batch;
  std::uint64_t first_row;  // its number in the table
  null_values null;
};

/// Byte strings of one batch.
class blob_rows {
 public:
  /// Those of `bytes` each, without gaps.
  blob_rows(const std::byte* first, std::uint64_t bytes, std::vector<null_level> nulls)
      : data_(first), size_(bytes), nulls_(std::move(nulls)) {}
  /// Those between offsets, of `width` bytes each.
  blob_rows(const std::byte* data, const std::byte* offsets, std::size_t width,
            std::vector<null_level> nulls)
      : data_(data), offsets_(offsets), size_(width), nulls_(std::move(nulls)) {}

  /// Row `row` of the batch.
  [[nodiscard]] std::span<const std::byte> at(std::uint64_t row) const noexcept {
    for (const null_level& level : nulls_) {
      if (!bit_at(level.bits, level.begin + row)) return {};
    }
    if (offsets_ == nullptr) {
      return {data_ + row * size_, static_cast<std::size_t>(size_)};
    }
    const std::uint64_t begin = offset(row);
    return {data_ + begin, static_cast<std::size_t>(offset(row + 1) - begin)};
  }

 private:
  [[nodiscard]] std::uint64_t offset(std::uint64_t row) const noexcept {
    return size_ == sizeof(std::int32_t)
               ? static_cast<std::uint64_t>(arrow_check::offset_at<std::int32_t>(offsets_, row))
               : static_cast<std::uint64_t>(arrow_check::offset_at<std::int64_t>(offsets_, row));
  }

  const std::byte* data_;
  const std::byte* offsets_ = nullptr;
  std::uint64_t size_;  // of a string, or of an offset
  std::vector<null_level> nulls_;
};

/// A column of byte strings.
class blob_plan {
 public:
  /// Throws `missing_column` and `column_type_mismatch`.
  blob_plan(const ArrowSchema& table, std::string_view where, const std::string& column)
      : plan_(find_column(table, where, column)) {
    const std::string expected = "binary, utf8, large_binary, large_utf8 or fixed_size_binary";
    open_lists(plan_, where, expected);
    const arrow_kind kind = plan_.element.kind;
    const bool is_bytes = kind == arrow_kind::binary || kind == arrow_kind::large_binary ||
                          kind == arrow_kind::fixed_binary;
    if (!is_bytes || !plan_.lists.empty()) refuse_type(where, plan_, expected);
  }

  /// Those of a batch. Throws `null_in_column` and `arrow_invalid`.
  [[nodiscard]] blob_rows rows(std::string_view where, const batch_place& of) const {
    column_walk walk{where, plan_, of.first_row, of.null};
    array_part at = walk.column(of.batch);
    const arrow_check& check = walk.check();
    const bool is_fixed = plan_.element.kind == arrow_kind::fixed_binary;
    at = walk.enter(at, is_fixed ? 2 : 3, 0);
    walk.note_nulls(at, 1);
    const std::byte* const second = check.require_buffer(*at.array, 1);
    if (is_fixed) {
      walk.require_room(at.begin + at.count, plan_.element.size);
      return {second + at.begin * plan_.element.size, plan_.element.size, walk.nulls()};
    }
    const bool is_large = plan_.element.kind == arrow_kind::large_binary;
    const std::uint64_t last =
        is_large ? check.require_offsets<std::int64_t>(second, at.begin, at.count)
                 : check.require_offsets<std::int32_t>(second, at.begin, at.count);
    const auto* const data = static_cast<const std::byte*>(at.array->buffers[2]);
    if (data == nullptr && last > 0) check.refuse("a buffer of bytes", "a null pointer");
    const std::size_t width = is_large ? sizeof(std::int64_t) : sizeof(std::int32_t);
    return {data, second + at.begin * width, width, walk.nulls()};
  }

 private:
  column_plan plan_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
