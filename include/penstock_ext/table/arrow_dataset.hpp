// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/table/arrow_table.hpp>
#include <penstock_ext/table/detail/columns.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A dataset over a table of another library's: the rows of all batches are its samples, and the
/// columns that are called as the fields are the fields. Copies nothing until a sample is read.
///
///     using digit = ps::record<ps::field<"image", std::uint8_t, 28, 28>,
///                              ps::field<"label", std::int64_t>>;
///     ps::arrow_dataset<digit> digits{ps::arrow_stream{&stream}};
///
/// The element types have to be the same: int8 to uint64, float32, float64; dates, times and
/// durations are their integers, float16 is `std::uint16_t` or another type of two bytes, bool is
/// `bool` or `std::uint8_t`. Extents are lists inside each other, one list of all elements, or a
/// fixed_size_binary of the field's bytes; variable lists have to have one length in all rows.
///
/// Every column is looked at when the dataset is made: types, counts, lengths, offsets, nulls.
/// Keeps the table, as its copies do, see `arrow_table`. Reading is thread-safe, and takes O(log
/// batches) to find a sample.
template <penstock::record_type Record>
class arrow_dataset {
 public:
  using record_type = Record;

  /// Takes a table, or an `arrow_stream`. Throws `missing_column`, `column_type_mismatch`,
  /// `column_shape_mismatch`, `null_in_column`, `extra_column`, each with the columns or types that
  /// there are; `arrow_invalid` for what can't be; and `option_error`.
  explicit arrow_dataset(arrow_table table, const table_options& options = {})
      : arrow_dataset(
            std::move(table),
            detail::table_columns{table.schema(), detail::wishes_of(std::type_identity<Record>{}),
                                  options, "arrow_dataset"}) {}

  /// How many samples there are: the rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return rows_.size(); }
  /// The extents of each; dynamic ones are those of the first row.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }

  /// Copies the samples `indices` into `out`. Throws `index_error`.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    for (std::size_t i = 0; i < indices.size();) {
      context.at(i);
      if (indices[i] >= size()) throw index_error("arrow_dataset", indices[i], size());
      i = rows_.copy(0, indices, i, out, context, layout_);
    }
  }

  /// Brings the sample nearer; does nothing for an index out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index < size()) rows_.prefetch(index);
  }

  /// Sentences about columns that are slow to decode, which name them; for a log.
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  // By reference: the order in which arguments are evaluated is unspecified, and the schema must
  // be read before the value is moved from.
  arrow_dataset(arrow_table&& table, detail::table_columns columns)
      : rows_(std::move(table), columns, 0),
        layout_(detail::extents_of_columns<Record>(columns), 1),
        warnings_(columns.warnings()) {}

  detail::table_rows<Record> rows_;
  batch_layout<Record> layout_;
  std::vector<std::string> warnings_;
};

static_assert(dataset<arrow_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
