// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/run_context.hpp>
#include <penstock/table/arrow_table.hpp>
#include <penstock/table/detail/column_rows.hpp>
#include <penstock/table/detail/column_wishes.hpp>
#include <penstock/table/detail/parquet_file.hpp>
#include <penstock/table/detail/table_columns.hpp>
#include <penstock/table/parquet_options.hpp>
#include <penstock/table/table_error.hpp>
#include <penstock/threads/detail/group_cache.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A dataset over Parquet files: their rows, file after file, are its samples, and columns become
/// fields by the rules of `arrow_dataset`. A row group is decoded as a whole, when its first row is
/// asked for, and held within `cache_bytes`; so read it by `block_shuffled`:
///
///     ps::parquet_dataset<digit> digits{{"train-0.parquet", "train-1.parquet"}};
///     ps::loader loader{digits, ps::block_shuffled{.seed = 1, .block = digits.block()}, {...}};
///
/// Types are looked at when it is made, lengths and nulls when a row group is decoded: what is
/// refused then comes at that batch's turn. Copies share files and row groups. Reading is
/// thread-safe: a row group is decoded by one thread, and those that want it wait.
template <penstock::record_type Record>
class parquet_dataset {
 public:
  using record_type = Record;

  /// Opens the files `paths` and reads their footers. Throws `file_unreadable`, `file_corrupt`, what
  /// `arrow_dataset` throws for a file's types, and `option_error` where a row group is larger than
  /// `cache_bytes` or there is no path.
  explicit parquet_dataset(const std::vector<std::string>& paths,
                           const parquet_options& options = {})
      : shared_(std::make_shared<shared>(options)), layout_(open(paths), 1) {
    for (const group& one : shared_->groups) {
      if (one.rows * layout_.sample_bytes() <= options.cache_bytes) continue;
      throw option_error("cache_bytes", "must be " +
                                            std::to_string(one.rows * layout_.sample_bytes()) +
                                            " at least, the bytes of a row group of " +
                                            shared_->files[one.file].path());
    }
  }
  /// One file.
  explicit parquet_dataset(const std::string& path, const parquet_options& options = {})
      : parquet_dataset(std::vector{path}, options) {}

  /// How many samples there are: the rows.
  [[nodiscard]] std::uint64_t size() const noexcept {
    return shared_->ends.empty() ? 0 : shared_->ends.back();
  }
  /// The extents of each; dynamic ones are those of the first row.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }
  /// How many rows the largest row group has, 1 at least: a block for `block_shuffled`.
  [[nodiscard]] std::uint64_t block() const noexcept { return shared_->block; }
  /// How many row groups there are.
  [[nodiscard]] std::size_t row_groups() const noexcept { return shared_->groups.size(); }
  /// How many row groups were decoded so far: in an epoch no more than there are, unless the order
  /// jumps between more of them than `cache_bytes` holds.
  [[nodiscard]] std::uint64_t decoded() const { return shared_->cache.made(); }
  /// The bytes of the row groups that are held now.
  [[nodiscard]] std::uint64_t held_bytes() const { return shared_->cache.held(); }
  /// Sentences about columns that are slow to decode, which name them; for a log.
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept {
    return shared_->warnings;
  }

  /// Copies the samples `indices` into `out`. Throws `index_error`, `file_corrupt`,
  /// `null_in_column` and `column_shape_mismatch`, with rows as the file counts them.
  void read_run(std::span<const std::uint64_t> indices, batch_view<Record> out,
                const run_context& context) const {
    std::size_t i = 0;
    while (i < indices.size()) {
      context.at(i);
      if (indices[i] >= size()) throw index_error("parquet_dataset", indices[i], size());
      const auto& ends = shared_->ends;
      const auto number = static_cast<std::size_t>(
          std::upper_bound(ends.begin(), ends.end(), indices[i]) - ends.begin());
      const std::uint64_t first = number == 0 ? 0 : ends[number - 1];
      const auto rows =
          shared_->cache.get(number, shared_->groups[number].rows * layout_.sample_bytes(),
                             [&] { return decode(number); });
      for (; i < indices.size() && indices[i] >= first && indices[i] < ends[number]; ++i) {
        context.at(i);
        copy(*rows, indices[i] - first, out[i]);
      }
    }
  }

 private:
  struct group {
    std::size_t file;
    int number;  // in the file
    std::uint64_t rows;
    std::uint64_t first_row;  // in the file
  };
  struct decoded_group {
    arrow_table table;
    std::vector<detail::column_rows> rows;  // batch by batch, field by field
  };
  struct shared {
    explicit shared(const parquet_options& given) : options(given), cache(given.cache_bytes) {}

    parquet_options options;
    std::vector<detail::parquet_file> files;
    std::vector<std::vector<std::size_t>> columns;  // of each file, those of the fields
    std::vector<group> groups;                      // with rows
    std::vector<std::uint64_t> ends;  // of the groups, in rows from the first one's start
    std::uint64_t block = 1;
    std::vector<std::string> warnings;
    detail::group_cache<decoded_group> cache;
  };

  [[nodiscard]] detail::table_columns columns_of(const ArrowSchema& schema,
                                                 const std::string& path) const {
    return {schema, detail::wishes_of(std::type_identity<Record>{}), shared_->options.table, path};
  }

  [[nodiscard]] record_extents<Record> open(const std::vector<std::string>& paths) {
    if (paths.empty()) throw option_error("paths", "must not be empty");
    shared& all = *shared_;
    all.files.reserve(paths.size());
    for (std::size_t f = 0; f < paths.size(); ++f) {
      const detail::parquet_file& file = all.files.emplace_back(paths[f]);
      const auto columns = columns_of(file.schema(), paths[f]);
      all.columns.push_back(columns.columns());
      for (auto& text : columns.warnings()) all.warnings.push_back(std::move(text));
      std::uint64_t first_row = 0;
      for (int g = 0; g < file.groups(); ++g) {
        const std::uint64_t rows = file.rows(g);
        if (rows == 0) continue;
        all.groups.push_back({f, g, rows, first_row});
        all.ends.push_back((all.ends.empty() ? 0 : all.ends.back()) + rows);
        all.block = (std::max)(all.block, rows);
        first_row += rows;
      }
    }
    auto columns = columns_of(all.files[0].schema(), paths[0]);
    if (!columns.is_settled() && !all.groups.empty()) {  // the first row says it
      const arrow_table table = table_of(0);
      columns = columns_of(table.schema(), paths[0]);
      (void)columns.rows(table.batch(0), 0);
      return detail::extents_of_columns<Record>(columns);
    }
    return detail::extents_of_columns<Record>(columns);
  }

  [[nodiscard]] arrow_table table_of(std::size_t number) const {
    const group& one = shared_->groups[number];
    return shared_->files[one.file].decode(one.number, shared_->columns[one.file]);
  }

  [[nodiscard]] decoded_group decode(std::size_t number) const {
    const group& one = shared_->groups[number];
    const std::string& path = shared_->files[one.file].path();
    decoded_group made{table_of(number), {}};
    // The footer may say another number than the pages hold.
    if (made.table.size() != one.rows) {
      throw file_corrupt(
          path, 0, std::to_string(one.rows) + " rows in row group " + std::to_string(one.number),
          std::to_string(made.table.size()));
    }
    auto columns = columns_of(made.table.schema(), path);
    for (std::size_t b = 0; b < made.table.batches(); ++b) {
      auto rows = columns.rows(made.table.batch(b), one.first_row + made.table.first_row(b));
      std::move(rows.begin(), rows.end(), std::back_inserter(made.rows));
    }
    if (detail::extents_of_columns<Record>(columns) != layout_.extents()) {
      throw column_shape_mismatch(path, {}, "lists of the lengths of the first row",
                                  "others in row group " + std::to_string(one.number));
    }
    return made;
  }

  void copy(const decoded_group& from, std::uint64_t row, const sample<Record>& place) const {
    const std::size_t batch = from.table.batch_of(row);
    const detail::column_rows* const columns = from.rows.data() + batch * Record::size;
    const std::uint64_t at = row - from.table.first_row(batch);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (columns[Is].copy(at, place.address(Is), layout_.template sample_bytes<Is>()), ...);
    }
    (std::make_index_sequence<Record::size>{});
  }

  std::shared_ptr<shared> shared_;
  batch_layout<Record> layout_;
};

static_assert(dataset<parquet_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
