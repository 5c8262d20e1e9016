// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/data/reader.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/table/arrow_table.hpp>
#include <penstock_ext/table/detail/columns.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Selects the table columns that `arrow_blobs` reads.
struct arrow_blobs_options {
  /// Name of the blob column, of type binary, utf8, large_binary, large_utf8 or fixed_size_binary.
  /// "image.bytes" is the member `bytes` of the struct column `image`, as in Hugging Face datasets.
  std::string blob = {};
  /// Name of the label column, of type bool or an integer type. If "", all labels are 0.
  std::string label = {};
  /// Name of the key column, of type utf8 or large_utf8. If "", the key of row 17 is "row 17".
  std::string key = {};
  /// Handling of nulls. With `value_initialised`, a null becomes an empty blob, the label 0 or the
  /// key "".
  null_values null = null_values::reject;
};

/// A `blob_source` for a column of byte strings, such as encoded images or texts. Returns the bytes
/// in table memory without copying.
///
///     ps::arrow_blobs photos{ps::arrow_stream{&stream}, {.blob = "image.bytes", .label = "label"}};
///     auto data = photos | ps::decode_images<ps::jpeg_decoder>(ps::random_resized_crop{224});
///
/// The constructor checks the offsets and nulls of all rows. Copies share the table (see
/// `arrow_table`). Reading is thread-safe and finds a row in O(log batches) time.
class arrow_blobs {
 public:
  /// Creates a source over `table`. An `arrow_stream` converts to a table. Throws `option_error` if
  /// `.blob` is empty, `missing_column`, `column_type_mismatch`, `null_in_column`, and
  /// `arrow_invalid` if the Arrow structures are invalid.
  arrow_blobs(arrow_table table, const arrow_blobs_options& options)
      : arrow_blobs(std::move(table), options, "arrow_blobs", 0) {}

  /// Returns the number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return table_.size(); }

  /// Returns the blob of row `index` in table memory. Throws `index_error` if `index` is out of
  /// range.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index,
                                                 [[maybe_unused]] blob_buffer& buffer) const {
    const auto [batch, row] = find(index);
    return blobs_[batch].at(row);
  }

  /// Returns the label of row `index`. Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    const auto [batch, row] = find(index);
    return labels_.empty() ? 0 : labels_[batch].at(row);
  }

  /// Returns the key of row `index`. Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    const auto [batch, row] = find(index);
    if (keys_.empty()) return "row " + std::to_string(index);
    const auto text = keys_[batch].at(row);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  /// Prefetches the start of row `index` into the CPU cache. Does nothing if the index is out of
  /// range.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size()) return;
    const std::size_t batch = table_.batch_of(index);
    const auto bytes = blobs_[batch].at(index - table_.first_row(batch));
    detail::prefetch_row(bytes.data(), bytes.size());
  }

 private:
  friend class parquet_blobs;

  // Creates a source over a part of the table `where`. Row numbers in messages start at
  // `first_row`.
  arrow_blobs(arrow_table table, const arrow_blobs_options& options, std::string_view where,
              std::uint64_t first_row)
      : table_(std::move(table)) {
    if (options.blob.empty()) detail::throw_option_error("blob", {"must name a column"});
    const ArrowSchema& schema = table_.schema();
    const bool has_key = !options.key.empty();
    const bool has_label = !options.label.empty();
    detail::column_plan blob = detail::plan_blobs(schema, where, options.blob);
    detail::column_plan key;
    detail::column_plan label;
    if (has_key) key = detail::plan_blobs(schema, where, options.key);
    if (has_label) label = detail::plan_labels(schema, where, options.label);
    for (std::size_t i = 0; i < table_.batches(); ++i) {
      const detail::batch_place place{table_.batch(i), first_row + table_.first_row(i),
                                      options.null};
      blobs_.push_back(detail::column_walk{blob, place}.blobs());
      if (has_key) keys_.push_back(detail::column_walk{key, place}.blobs());
      if (has_label) labels_.push_back(detail::column_walk{label, place}.labels());
    }
  }

  [[nodiscard]] std::pair<std::size_t, std::uint64_t> find(std::uint64_t index) const {
    if (index >= size()) throw index_error("arrow_blobs", index, size());
    const std::size_t batch = table_.batch_of(index);
    return {batch, index - table_.first_row(batch)};
  }

  arrow_table table_;
  std::vector<detail::blob_rows> blobs_;    // indexed by batch
  std::vector<detail::blob_rows> keys_;     // indexed by batch; empty without a key column
  std::vector<detail::label_rows> labels_;  // indexed by batch; empty without a label column
};

static_assert(blob_source<arrow_blobs>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
