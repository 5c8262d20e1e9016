// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/table/arrow_owners.hpp>
#include <penstock_ext/table/detail/arrow_check.hpp>
#include <penstock_ext/table/detail/arrow_type.hpp>
#include <penstock_ext/table/detail/null_bits.hpp>
#include <penstock_ext/table/table_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A table of another library's: a type, and batches of rows, numbered through. Nothing is copied.
///
///     ps::arrow_table table{ps::arrow_stream{&stream}};   // an ArrowArrayStream of pyarrow's
///     ps::arrow_dataset<digit> digits{table};
///
/// Copies have the batches in common, and the last one releases them, on its thread: a producer's
/// `release` takes Python's interpreter lock itself where it needs it. The memory must not change
/// meanwhile. Reading is thread-safe.
class arrow_table {
 public:
  /// Reads all batches of `stream`, and keeps them. Throws `arrow_stream_failed` where the producer
  /// does, and `arrow_invalid` for what is no table. The stream is released in any case.
  arrow_table(arrow_stream stream)  // NOLINT: implicit, so that a dataset takes a stream
      : content_(read(std::move(stream))) {}
  /// The batches, which are structs of the type that `schema` says. Throws `arrow_invalid`; all are
  /// released then.
  arrow_table(arrow_schema schema, std::vector<arrow_array> batches)
      : content_(std::make_shared<content>()) {
    content_->schema = std::move(schema);
    require_table(*content_);
    for (arrow_array& batch : batches) add(*content_, std::move(batch));
  }
  /// One batch.
  arrow_table(arrow_schema schema, arrow_array batch)
      : arrow_table(std::move(schema), listed(std::move(batch))) {}

  /// How many rows there are.
  [[nodiscard]] std::uint64_t size() const noexcept {
    return content_->ends.empty() ? 0 : content_->ends.back();
  }
  /// How many batches have rows.
  [[nodiscard]] std::size_t batches() const noexcept { return content_->batches.size(); }
  /// The type of the batches.
  [[nodiscard]] const ArrowSchema& schema() const noexcept { return *content_->schema; }
  /// Batch `number`, below `batches()`.
  [[nodiscard]] const ArrowArray& batch(std::size_t number) const noexcept {
    return *content_->batches[number];
  }
  /// The number of the first row of batch `number`, below `batches()`.
  [[nodiscard]] std::uint64_t first_row(std::size_t number) const noexcept {
    return number == 0 ? 0 : content_->ends[number - 1];
  }
  /// The batch of row `index`, below `size()`. O(log batches).
  [[nodiscard]] std::size_t batch_of(std::uint64_t index) const noexcept {
    const auto after = std::upper_bound(content_->ends.begin(), content_->ends.end(), index);
    return static_cast<std::size_t>(after - content_->ends.begin());
  }
  /// The columns with their types, for messages: "label: int64, image: list<uint8>".
  [[nodiscard]] std::string columns() const { return detail::arrow_columns(schema()); }

 private:
  struct content {
    arrow_schema schema;
    std::vector<arrow_array> batches;  // none without rows
    std::vector<std::uint64_t> ends;   // of the batches, in rows from the first one's start
  };

  static constexpr std::string_view name{"arrow_table"};  // of messages

  [[nodiscard]] static std::vector<arrow_array> listed(arrow_array one) {
    std::vector<arrow_array> all;
    all.push_back(std::move(one));
    return all;
  }

  static void require_table(const content& table) {
    const detail::arrow_check check{name, {}};
    if (!table.schema) check.refuse("a type", "none, or one that was released");
    check.require_schema(*table.schema);
    if (std::string_view{table.schema->format} != "+s" || table.schema->dictionary != nullptr) {
      check.refuse("a struct, whose members are the columns", detail::arrow_words(*table.schema));
    }
  }

  static void add(content& table, arrow_array batch) {
    const detail::arrow_check check{name, {}};
    if (!batch) check.refuse("a batch", "none, or one that was released");
    const auto rows = static_cast<std::uint64_t>(batch->length);
    check.require_array(*batch, 1, table.schema->n_children, 0, batch->length < 0 ? 0 : rows);
    const auto offset = static_cast<std::uint64_t>(batch->offset);
    const auto* const bits = static_cast<const std::byte*>(batch->buffers[0]);
    if (bits != nullptr && detail::first_zero_bit(bits, offset, rows) < rows) {
      check.refuse("rows", "a row that is null as a whole");
    }
    if (rows == 0) return;
    const std::uint64_t before = table.ends.empty() ? 0 : table.ends.back();
    table.batches.push_back(std::move(batch));
    table.ends.push_back(before + rows);
  }

  [[nodiscard]] static std::shared_ptr<content> read(arrow_stream stream) {
    if (!stream) detail::arrow_check{name, {}}.refuse("a stream", "none, or one that was released");
    auto table = std::make_shared<content>();
    ArrowArrayStream* const from = stream.address();
    if (from->get_schema == nullptr || from->get_next == nullptr ||
        from->get_last_error == nullptr) {
      detail::arrow_check{name, {}}.refuse("a stream's functions", "a null pointer");
    }
    require_done(from, from->get_schema(from, table->schema.address()), "the type of a stream");
    require_table(*table);
    while (true) {
      arrow_array batch;
      require_done(from, from->get_next(from, batch.address()), "the next batch of a stream");
      if (!batch) return table;
      add(*table, std::move(batch));
    }
  }

  static void require_done(ArrowArrayStream* stream, int code, const char* expected) {
    if (code == 0) return;
    const char* const words = stream->get_last_error(stream);
    throw arrow_stream_failed(std::string{name}, expected,
                              words == nullptr ? "error " + std::to_string(code) : words, code);
  }

  std::shared_ptr<content> content_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
