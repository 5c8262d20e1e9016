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

/// A dataset over an Arrow table of another library. Each row is a sample, and each field reads the
/// column of the same name. Copies nothing until a sample is read.
///
///     using digit = ps::record<ps::field<"image", std::uint8_t, 28, 28>,
///                              ps::field<"label", std::int64_t>>;
///     ps::arrow_dataset<digit> digits{ps::arrow_stream{&stream}};
///
/// The element types must match, from int8 to uint64, float32 and float64. Dates, times and
/// durations are read as their integers, and float16 as `std::uint16_t` or another type of two
/// bytes. A bool is read as `bool` or `std::uint8_t`. The extents of a field are nested lists, one
/// list of all elements, or a fixed_size_binary of the field's bytes. Lists of variable length must
/// have the same length in all rows.
///
/// The constructor checks every column: types, counts, lengths, offsets, nulls. Shares the table
/// with its copies, see `arrow_table`. Reading is thread-safe, and takes O(log batches) to find a
/// sample.
template <penstock::record_type Record>
class arrow_dataset {
 public:
  using record_type = Record;

  /// Takes a table, or an `arrow_stream`. Throws `missing_column`, `column_type_mismatch`,
  /// `column_shape_mismatch`, `null_in_column` or `extra_column`, each with the columns or types
  /// that were found. Throws `arrow_invalid` if the Arrow structures are invalid, and
  /// `option_error`.
  explicit arrow_dataset(arrow_table table, const table_options& options = {})
      : arrow_dataset(
            std::move(table),
            detail::table_columns{table.schema(), detail::wishes_of(std::type_identity<Record>{}),
                                  options, "arrow_dataset"}) {}

  /// Returns the number of samples, which is the number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return rows_.size(); }
  /// Returns the extents of each sample. The first row determines dynamic extents.
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

  /// Prefetches sample `index` into the cache. Does nothing if the index is out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index < size()) rows_.prefetch(index);
  }

  /// Returns messages for a log about columns that are slow to decode.
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  // Takes the table by reference, because the schema must be read before the table is moved from,
  // and the order in which arguments are evaluated is unspecified.
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
