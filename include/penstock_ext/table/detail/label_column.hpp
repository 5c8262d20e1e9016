// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/detail/blob_column.hpp>
#include <penstock_ext/table/detail/column_plan.hpp>
#include <penstock_ext/table/detail/column_rows.hpp>
#include <penstock_ext/table/table_error.hpp>
#include <penstock_ext/table/table_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Labels of one batch: integers of any size, or bits.
class label_rows {
 public:
  /// `rows` are of `bytes` each.
  label_rows(column_rows rows, std::size_t bytes, bool is_signed)
      : rows_(std::move(rows)), bytes_(bytes), is_signed_(is_signed) {}

  /// Row `row` of the batch.
  [[nodiscard]] std::int64_t at(std::uint64_t row) const noexcept {
    std::array<std::byte, 8> value{};
    rows_.copy(row, value.data(), bytes_);
    switch (bytes_) {
      case 1:
        return is_signed_ ? number<std::int8_t>(value) : number<std::uint8_t>(value);
      case 2:
        return is_signed_ ? number<std::int16_t>(value) : number<std::uint16_t>(value);
      case 4:
        return is_signed_ ? number<std::int32_t>(value) : number<std::uint32_t>(value);
      default:
        return number<std::int64_t>(value);
    }
  }

 private:
  template <class T>
  [[nodiscard]] static std::int64_t number(const std::array<std::byte, 8>& bytes) noexcept {
    T value{};
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  column_rows rows_;
  std::size_t bytes_;
  bool is_signed_;
};

/// A column of labels, or none.
class label_plan {
 public:
  /// None where `column` is "". Throws `missing_column` and `column_type_mismatch`.
  label_plan(const ArrowSchema& table, std::string_view where, const std::string& column) {
    if (column.empty()) return;
    plan_ = find_column(table, where, column);
    const std::string expected = "a column of integers or bool";
    open_lists(plan_, where, expected);
    const arrow_kind kind = plan_.element.kind;
    const bool is_number = kind == arrow_kind::boolean || kind == arrow_kind::signed_integer ||
                           kind == arrow_kind::unsigned_integer;
    if (!is_number || !plan_.lists.empty()) refuse_type(where, plan_, expected);
  }

  /// Those of a batch. Throws `null_in_column`, `arrow_invalid`, and `table_error` for a number
  /// that a label has no room for.
  [[nodiscard]] label_rows rows(std::string_view where, const batch_place& of) const {
    const auto bytes = static_cast<std::size_t>(plan_.element.size);
    column_plan plan = plan_;
    column_walk walk{where, plan, of.first_row, of.null};
    const bool is_signed = plan_.element.kind == arrow_kind::signed_integer;
    label_rows all{walk.rows(of.batch, plan, bytes), bytes, is_signed};
    // The one type whose numbers may not fit.
    const bool is_wide = !is_signed && bytes == sizeof(std::int64_t);
    const auto count = static_cast<std::uint64_t>(of.batch.length);
    for (std::uint64_t row = 0; is_wide && row < count; ++row) {
      if (all.at(row) >= 0) continue;
      throw table_error(std::string{where}, plan_.name,
                        "labels below 2^63 in row " + std::to_string(of.first_row + row),
                        std::to_string(static_cast<std::uint64_t>(all.at(row))));
    }
    return all;
  }

 private:
  column_plan plan_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
