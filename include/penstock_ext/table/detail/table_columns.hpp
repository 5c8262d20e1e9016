// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/detail/column_plan.hpp>
#include <penstock_ext/table/detail/column_rows.hpp>
#include <penstock_ext/table/detail/field_column.hpp>
#include <penstock_ext/table/table_error.hpp>
#include <penstock_ext/table/table_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The columns of a table that are the fields of a record.
class table_columns {
 public:
  /// Finds the columns in the table's type. Throws `missing_column`, `column_type_mismatch`,
  /// `column_shape_mismatch`, `extra_column`, and `option_error` for another number of columns than
  /// fields. `where` is said in messages.
  table_columns(const ArrowSchema& table, std::vector<column_wish> wishes,
                const table_options& options, std::string where)
      : where_(std::make_unique<std::string>(std::move(where))), null_(options.null) {
    if (!options.columns.empty() && options.columns.size() != wishes.size()) {
      throw option_error("columns", "must name " + std::to_string(wishes.size()) +
                                        " columns, one for each field, or none; names " +
                                        std::to_string(options.columns.size()));
    }
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      if (!options.columns.empty()) wishes[i].column = options.columns[i];
      fields_.emplace_back(table, *where_, std::move(wishes[i]));
    }
    if (options.extra == extra_columns::refuse) require_no_other(table);
  }

  /// Whether the type alone says the extents of all fields.
  [[nodiscard]] bool is_settled() const noexcept {
    return std::all_of(fields_.begin(), fields_.end(),
                       [](const field_column& one) { return one.is_settled(); });
  }

  /// The rows of a batch, field by field; its first row is number `first_row` of the table. The
  /// first batch also says extents that the type does not. Throws what `column_walk::rows` throws,
  /// and `column_shape_mismatch`.
  [[nodiscard]] std::vector<column_rows> rows(const ArrowArray& batch, std::uint64_t first_row) {
    std::vector<column_rows> all;
    all.reserve(fields_.size());
    for (field_column& field : fields_) {
      column_walk walk{*where_, field.plan(), first_row, null_};
      all.push_back(walk.rows(batch, field.plan(), field.wish().element_bytes));
      if (!field.has_extents()) field.settle();
    }
    return all;
  }

  /// The extents of field `index`, once a batch was looked at. Throws `column_shape_mismatch` where
  /// there was none, and it should have said them.
  [[nodiscard]] const std::vector<std::size_t>& extents(std::size_t index) {
    field_column& field = fields_[index];
    if (!field.has_extents()) field.settle();
    return field.extents();
  }

  /// What there is to say about columns that are slow to decode.
  [[nodiscard]] std::vector<std::string> warnings() const {
    std::vector<std::string> all;
    for (const field_column& one : fields_) {
      if (auto text = one.warning(); !text.empty()) all.push_back(std::move(text));
    }
    return all;
  }

  /// The numbers of the table's columns that the fields are in, in the record's order.
  [[nodiscard]] std::vector<std::size_t> columns() const {
    std::vector<std::size_t> all;
    for (const field_column& one : fields_) all.push_back(one.plan().path[0].child);
    return all;
  }

 private:
  void require_no_other(const ArrowSchema& table) const {
    std::string others;
    const auto taken = columns();
    for (std::size_t i = 0; i < static_cast<std::size_t>(table.n_children); ++i) {
      if (std::find(taken.begin(), taken.end(), i) != taken.end()) continue;
      const ArrowSchema& other = *table.children[i];
      others += (others.empty() ? "" : ", ") + arrow_name(other) + ": " + arrow_words(other);
    }
    if (others.empty()) return;
    throw extra_column(*where_, {}, "no columns but those of the fields", others,
                       "select the columns before, or leave .extra at extra_columns::ignore");
  }

  std::unique_ptr<std::string> where_;  // which the fields point to, wherever this is moved
  null_values null_;
  std::vector<field_column> fields_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
