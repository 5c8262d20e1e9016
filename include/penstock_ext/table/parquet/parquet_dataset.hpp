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
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/blob/support/group_cache.hpp>
#include <penstock_ext/table/arrow_table.hpp>
#include <penstock_ext/table/detail/columns.hpp>
#include <penstock_ext/table/parquet/detail/parquet_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options of `parquet_dataset`.
struct parquet_options {
  /// Maps columns to fields.
  table_options table = {};
  /// Maximum size of the cached row groups in bytes, at least the size of the largest row group.
  /// Counts field data without validity bitmaps and list offsets. Numbers that are used in place in
  /// file pages occupy up to 25 % more. A group that is being decoded also needs memory for its
  /// compressed pages.
  std::uint64_t cache_bytes = std::uint64_t{1} << 28;
  /// If true, verifies the CRC-32 of each decoded page, and throws `file_corrupt` for a damaged
  /// page. Off by default, because it roughly doubles the decoding time of uncompressed columns.
  /// Ignores pages without a checksum; pyarrow writes checksums only with
  /// `write_page_checksum=True`.
  bool verify = false;
  /// If true, reads row groups without the page cache (O_DIRECT), for files that do not fit into
  /// memory. Allocates a buffer of 2 to 8 MiB for each decoding thread, and opens two descriptors
  /// for each file. Disables prefetching. On a file system without direct I/O, reads use the page
  /// cache.
  bool direct = false;
  /// Handling of a file that is listed twice, possibly through a link. `take_last` reads only the
  /// last occurrence, and `keep` reads all.
  duplicate_action duplicates = duplicate_action::reject;
};

/// A dataset over Parquet files. The samples are the rows of all files in file order. Columns map
/// to fields as in `arrow_dataset`. The first read of a row decodes its whole row group, which
/// stays in a cache of `cache_bytes`. Therefore read the rows in the order `block_shuffled`:
///
///     ps::parquet_dataset<digit> digits{{"train-0.parquet", "train-1.parquet"}};
///     ps::loader loader{digits, ps::block_shuffled{.seed = 1, .block = digits.block()}, {...}};
///
/// If a batch spans several groups, set `loader_options::tuning.chunk = digits.block()`, so that
/// each worker decodes a different group. With smaller chunks, several workers wait for the same
/// group.
///
/// The constructor checks types. Decoding checks lengths and nulls, so the consumer receives such
/// errors with the affected batch. Copies share files and row groups. Reading is thread-safe. One
/// thread decodes a row group. Other threads that need that group first read the other groups of
/// their chunk, and then wait.
template <penstock::record_type Record>
class parquet_dataset {
 public:
  using record_type = Record;

  /// Opens the files at `paths` and reads their footers. Throws `file_unreadable`, `file_corrupt`,
  /// `duplicate_entry` for a file that is listed twice, the type errors of `arrow_dataset`, and
  /// `option_error` if a row group exceeds `cache_bytes` or `paths` is empty.
  explicit parquet_dataset(const std::vector<std::string>& paths,
                           const parquet_options& options = {})
      : shared_(std::make_shared<shared>(paths, options)), layout_(extents_in_files(), 1) {
    for (const detail::parquet_group& one : shared_->all.groups()) {
      std::uint64_t bytes = 0;
      const bool is_beyond = __builtin_mul_overflow(one.rows, layout_.sample_bytes(), &bytes);
      if (!is_beyond && bytes <= options.cache_bytes) continue;
      if (is_beyond) bytes = (std::numeric_limits<std::uint64_t>::max)();
      detail::throw_option_error("cache_bytes",
                                 {"must be at least ", bytes, ", the bytes of a row group of ",
                                  shared_->all.file_of(one).path()});
    }
  }
  /// Opens one file. Throws the same errors as the constructor for several files.
  explicit parquet_dataset(const std::string& path, const parquet_options& options = {})
      : parquet_dataset(std::vector{path}, options) {}

  /// Returns the number of samples (rows).
  [[nodiscard]] std::uint64_t size() const noexcept { return shared_->all.size(); }
  /// Returns the extents of each sample. Dynamic extents are those of the first row.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }
  /// Returns the number of rows in the largest row group, at least 1. Use it as the block size of
  /// `block_shuffled`.
  [[nodiscard]] std::uint64_t block() const noexcept { return shared_->all.block(); }
  /// Returns the number of row groups.
  [[nodiscard]] std::size_t row_groups() const noexcept { return shared_->all.groups().size(); }
  /// Returns the number of row groups decoded so far. An epoch decodes each group once, unless it
  /// alternates between more groups than fit into `cache_bytes`.
  [[nodiscard]] std::uint64_t decoded() const { return shared_->cache.made(); }
  /// Returns the current size of the cached row groups in bytes.
  [[nodiscard]] std::uint64_t held_bytes() const { return shared_->cache.held(); }
  /// Returns warnings about columns that are slow to decode and files without rows.
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept {
    return shared_->warnings;
  }

  /// Copies the samples `indices` into `out`. Throws `index_error`, `file_corrupt`,
  /// `null_in_column` and `column_shape_mismatch`. Row numbers in errors are relative to the file.
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
      shared_->all.record_read(part.group);
      const std::uint64_t first = shared_->all.first_row(part.group);
      for (std::size_t i = part.begin; i < part.end;) {
        i = group.copy(first, indices.first(part.end), i, out, context, layout_);
      }
    });
  }

  /// Starts reads of the row groups that contain the rows `indices` into the page cache. Reads only
  /// the selected columns and decodes nothing. The loader calls this if
  /// `loader_options::lookahead_bytes` is set.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    shared_->all.prefetch_hint(indices);
  }
  /// Returns the compressed size in bytes of the row group that contains row `index`, divided by
  /// its number of rows. Returns 0 if the index is out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    return shared_->all.storage_size(index);
  }

 private:
  using decoded_group = detail::table_rows<Record>;
  struct shared {
    shared(const std::vector<std::string>& paths, const parquet_options& given)
        : options(given),
          all(detail::resolve_repeated_paths(paths, given.duplicates), given.verify, given.direct,
              [&](const auto& file) { return leaves_in(file); }),
          cache(given.cache_bytes) {
      if (all.size() != 0) return;
      warnings.push_back(paths.front() + (paths.size() == 1 ? "" : " and the files after it") +
                         ": no rows in " + std::to_string(all.files().front().groups()) +
                         " row groups");
    }

    // Maps the columns of a file or row group to the fields.
    [[nodiscard]] detail::table_columns columns_of(const ArrowSchema& schema,
                                                   const std::string& path) const {
      return {schema, detail::specs_of(std::type_identity<Record>{}), options.table, path};
    }

    // Returns the leaves for all fields. Throws if their types do not match.
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

  // Returns the extents of each sample, determined by the types in the first file, or otherwise by
  // its first row.
  [[nodiscard]] record_extents<Record> extents_in_files() const {
    const detail::parquet_groups& all = shared_->all;
    const detail::parquet_file& file = all.files()[0];
    auto columns = shared_->columns_of(file.schema(), file.path());
    if (columns.is_determined() || all.groups().empty()) {
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

  // Throws if the extents of row group `group` differ from those of the dataset.
  void require_extents(const detail::table_columns& columns, const std::string& path,
                       int group) const {
    const record_extents<Record> found = detail::extents_of_columns<Record>(columns);
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      const auto require = [&](std::size_t index, bool is_same) {
        if (is_same) return;
        throw column_shape_mismatch(path, columns.column(index),
                                    "lists of the lengths in the first row",
                                    "other lengths in row group " + std::to_string(group));
      };
      (require(Is, found.template at<Is>() == extents().template at<Is>()), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  // Consecutive samples of a chunk in the same row group.
  struct chunk_part {
    std::size_t group;
    std::uint64_t bytes;  // group size
    std::size_t begin;
    std::size_t end;
  };

  // Returns the part that starts at position `i` in `indices`.
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
