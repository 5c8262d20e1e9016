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

/// A dataset over an Arrow table from another library. Each row is a sample, and each field reads
/// the column with its name. Data is copied only when a sample is read.
///
///     using digit = ps::record<ps::field<"image", std::uint8_t, 28, 28>,
///                              ps::field<"label", std::int64_t>>;
///     ps::arrow_dataset<digit> digits{ps::arrow_stream{&stream}};
///
/// Element types must match: int8 to uint64, float32 and float64. Dates, times and durations are
/// read as integers, and float16 as `std::uint16_t` or another two-byte type. A bool is read as
/// `bool` or `std::uint8_t`. A field with extents reads nested lists, a single list of all
/// elements, or a fixed_size_binary with the bytes of the field. Variable-size lists must have the
/// same length in all rows.
///
/// The constructor checks the types, counts, lengths, offsets and nulls of all columns. Copies
/// share the table (see `arrow_table`). Reading is thread-safe and finds a sample in O(log batches)
/// time.
template <penstock::record_type Record>
class arrow_dataset {
 public:
  using record_type = Record;

  /// Creates a dataset over `table`. An `arrow_stream` converts to a table. Throws
  /// `missing_column`, `column_type_mismatch`, `column_shape_mismatch`, `null_in_column` or
  /// `extra_column`, with the columns or types found. Throws `arrow_invalid` if the Arrow
  /// structures are invalid, and `option_error`.
  explicit arrow_dataset(arrow_table table, const table_options& options = {})
      : arrow_dataset(
            std::move(table),
            detail::table_columns{table.schema(), detail::specs_of(std::type_identity<Record>{}),
                                  options, "arrow_dataset"}) {}

  /// Returns the number of samples (rows).
  [[nodiscard]] std::uint64_t size() const noexcept { return rows_.size(); }
  /// Returns the extents of each sample. Dynamic extents are those of the first row.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }

  /// Copies the samples with the given `indices` into `out`. Throws `index_error` if an index is
  /// out of range.
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    for (std::size_t i = 0; i < indices.size();) {
      context.at(i);
      if (indices[i] >= size()) throw index_error("arrow_dataset", indices[i], size());
      i = rows_.copy(0, indices, i, out, context, layout_);
    }
  }

  /// Prefetches sample `index` into the CPU cache. Does nothing if the index is out of range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index < size()) rows_.prefetch(index);
  }

  /// Returns warnings about columns that are slow to decode.
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  // The table is passed by reference, because its schema must be read before it is moved from, and
  // the evaluation order of arguments is unspecified.
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
