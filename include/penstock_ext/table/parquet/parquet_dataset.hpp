// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
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
#include <penstock/core/version.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/threads/support/group_cache.hpp>
#include <penstock_ext/table/arrow_table.hpp>
#include <penstock_ext/table/detail/columns.hpp>
#include <penstock_ext/table/parquet/detail/parquet_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How Parquet files are read.
struct parquet_options {
  /// How columns become fields.
  table_options table = {};
  /// The most bytes of decoded row groups that are held, at least those of the largest one; counted
  /// as the fields', without bits of nulls and offsets of lists; numbers that stay in the memory of
  /// their pages take up to a quarter more. What is being decoded takes its compressed pages
  /// besides.
  std::uint64_t cache_bytes = std::uint64_t{1} << 28;
  /// Whether the pages of a row group are compared with their sums (CRC-32) each time it is
  /// decoded: `file_corrupt` for a damaged one. Off by default, because columns that are not
  /// compressed then take about twice as long. A page without a sum is not checked: pyarrow writes
  /// sums only with `write_page_checksum=True`.
  bool verify = false;
  /// Whether row groups are read past the page cache (O_DIRECT), by way of 2 to 8 MiB for each
  /// thread that decodes: for files that do not fit into memory. Nothing is prefetched then, and a
  /// file takes two descriptors. On a file system that has no such reads they come by way of the
  /// cache.
  bool direct = false;
};

/// A dataset over Parquet files: their rows, file after file, are its samples, and columns become
/// fields by the rules of `arrow_dataset`. A row group is decoded as a whole, when its first row is
/// asked for, and held within `cache_bytes`; so read it by `block_shuffled`:
///
///     ps::parquet_dataset<digit> digits{{"train-0.parquet", "train-1.parquet"}};
///     ps::loader loader{digits, ps::block_shuffled{.seed = 1, .block = digits.block()}, {...}};
///
/// Where a batch has several groups, `loader_options::tuning.chunk = digits.block()` has many
/// workers decode a group each; with smaller chunks several wait for one.
///
/// Types are looked at when it is made, lengths and nulls when a row group is decoded: what is
/// refused then comes at that batch's turn. Copies share files and row groups. Reading is
/// thread-safe: a row group is decoded by one thread, and those that want it read the other groups
/// of their chunk first, and then wait.
template <penstock::record_type Record>
class parquet_dataset {
 public:
  using record_type = Record;

  /// Opens the files `paths` and reads their footers. Throws `file_unreadable`, `file_corrupt`,
  /// what `arrow_dataset` throws for a file's types, and `option_error` where a row group is larger
  /// than `cache_bytes` or there is no path.
  explicit parquet_dataset(const std::vector<std::string>& paths,
                           const parquet_options& options = {})
      : shared_(std::make_shared<shared>(paths, options)), layout_(extents_in_files(), 1) {
    for (const detail::parquet_group& one : shared_->all.groups()) {
      std::uint64_t bytes = 0;
      const bool is_beyond = __builtin_mul_overflow(one.rows, layout_.sample_bytes(), &bytes);
      if (!is_beyond && bytes <= options.cache_bytes) continue;
      if (is_beyond) bytes = (std::numeric_limits<std::uint64_t>::max)();
      detail::refuse_option("cache_bytes",
                            {"must be ", bytes, " at least, the bytes of a row group of ",
                             shared_->all.file_of(one).path()});
    }
  }
  /// One file.
  explicit parquet_dataset(const std::string& path, const parquet_options& options = {})
      : parquet_dataset(std::vector{path}, options) {}

  /// How many samples there are: the rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return shared_->all.size(); }
  /// The extents of each; dynamic ones are those of the first row.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }
  /// How many rows the largest row group has, 1 at least: a block for `block_shuffled`.
  [[nodiscard]] std::uint64_t block() const noexcept { return shared_->all.block(); }
  /// How many row groups there are.
  [[nodiscard]] std::size_t row_groups() const noexcept { return shared_->all.groups().size(); }
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
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    std::vector<chunk_part> parts;
    for (std::size_t i = 0; i < indices.size(); i = parts.back().end) {
      context.at(i);
      parts.push_back(part_at(indices, i));
    }
    const auto begin = [&](const chunk_part& part) { context.at(part.begin); };
    const auto make = [&](const chunk_part& part) { return decode(part.group); };
    shared_->cache.get_each(parts, begin, make, [&](const chunk_part& part, const auto& group) {
      shared_->all.note_read(part.group);
      const std::uint64_t first = shared_->all.first_row(part.group);
      for (std::size_t i = part.begin; i < part.end;) {
        i = group.copy(first, indices.first(part.end), i, out, context, layout_);
      }
    });
  }

  /// Has the system read the row groups of the rows `indices`, their columns that are read, as
  /// `loader_options::ahead.bytes` has it. They are decoded when they are needed.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    shared_->all.prefetch_hint(indices);
  }
  /// The share of row `index` in its row group's bytes in the file; 0 for one out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    return shared_->all.storage_size(index);
  }

 private:
  using decoded_group = detail::table_rows<Record>;
  struct shared {
    shared(const std::vector<std::string>& paths, const parquet_options& given)
        : options(given),
          all(paths, given.verify, given.direct, [&](const auto& file) { return leaves_in(file); }),
          cache(given.cache_bytes) {}

    // Of a file, or of a group of it.
    [[nodiscard]] detail::table_columns columns_of(const ArrowSchema& schema,
                                                   const std::string& path) const {
      return {schema, detail::wishes_of(std::type_identity<Record>{}), options.table, path};
    }

    // Those of the fields. Throws where the types are not what is wanted.
    [[nodiscard]] std::vector<int> leaves_in(const detail::parquet_file& file) {
      const auto columns = columns_of(file.schema(), file.path());
      for (auto& text : columns.warnings()) warnings.push_back(std::move(text));
      return file.leaves(columns.paths());
    }

    parquet_options options;
    std::vector<std::string> warnings;
    detail::parquet_groups all;
    detail::group_cache<decoded_group> cache;
  };

  // The extents of each sample, by the types of the first file or by the first row.
  [[nodiscard]] record_extents<Record> extents_in_files() const {
    const detail::parquet_groups& all = shared_->all;
    const detail::parquet_file& file = all.files()[0];
    auto columns = shared_->columns_of(file.schema(), file.path());
    if (columns.is_settled() || all.groups().empty()) {
      return detail::extents_of_columns<Record>(columns);
    }
    const arrow_table table = all.decode(0);
    auto first = shared_->columns_of(table.schema(), all.file_of(all.groups()[0]).path());
    (void)first.rows(table.batch(0), 0);
    return detail::extents_of_columns<Record>(first);
  }

  [[nodiscard]] decoded_group decode(std::size_t number) const {
    const detail::parquet_group& one = shared_->all.groups()[number];
    const std::string& path = shared_->all.file_of(one).path();
    arrow_table table = shared_->all.decode(number);
    auto columns = shared_->columns_of(table.schema(), path);
    decoded_group made{std::move(table), columns, one.first_row};
    require_extents(columns, path, one.number);
    return made;
  }

  // Throws where the rows of row group `group` are no rows of the dataset.
  void require_extents(const detail::table_columns& columns, const std::string& path,
                       int group) const {
    const record_extents<Record> found = detail::extents_of_columns<Record>(columns);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      const auto require = [&](std::size_t index, bool is_same) {
        if (is_same) return;
        throw column_shape_mismatch(path, columns.column(index),
                                    "lists of the lengths of the first row",
                                    "others in row group " + std::to_string(group));
      };
      (require(Is, found.template at<Is>() == extents().template at<Is>()), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  // Samples of a chunk, side by side, that lie in one row group.
  struct chunk_part {
    std::size_t group;
    std::uint64_t bytes;  // of the group
    std::size_t begin;
    std::size_t end;
  };

  // The part that begins with sample `i`.
  [[nodiscard]] chunk_part part_at(std::span<const std::uint64_t> indices, std::size_t i) const {
    if (indices[i] >= size()) throw index_error("parquet_dataset", indices[i], size());
    const std::size_t group = shared_->all.group_of(indices[i]);
    const std::uint64_t first = shared_->all.first_row(group);
    const std::uint64_t rows = shared_->all.groups()[group].rows;
    const std::size_t end = detail::run_end(indices, i, first, rows);
    return {group, rows * layout_.sample_bytes(), i, end};
  }

  std::shared_ptr<shared> shared_;
  batch_layout<Record> layout_;
};

static_assert(dataset<parquet_dataset<record<field<"x", float, dyn>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
