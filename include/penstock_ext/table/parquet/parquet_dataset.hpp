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

/// Options for reading Parquet files.
struct parquet_options {
  /// Maps columns to fields.
  table_options table = {};
  /// Maximum size of the decoded row groups in memory, in bytes, at least the size of the largest
  /// row group. Sizes are those of the fields, without bitmaps of nulls and offsets of lists.
  /// Numbers that stay in the memory of their pages take up to a quarter more. A group that is
  /// being decoded also needs memory for its compressed pages.
  std::uint64_t cache_bytes = std::uint64_t{1} << 28;
  /// Checks the CRC-32 of each page whenever a row group is decoded, and throws `file_corrupt` for
  /// a damaged page. Off by default, because it about doubles the decoding time of uncompressed
  /// columns. A page without a checksum is not checked: pyarrow writes checksums only with
  /// `write_page_checksum=True`.
  bool verify = false;
  /// Reads row groups without the page cache (O_DIRECT), for files that do not fit into memory.
  /// Takes a buffer of 2 to 8 MiB for each thread that decodes, and two descriptors per file.
  /// Disables prefetching. On a file system without direct I/O, reads use the page cache.
  bool direct = false;
  /// The action if a file is listed twice, possibly through a link: an error, reading it only at
  /// its last position, or reading it at each position.
  duplicate_action duplicates = duplicate_action::refuse;
};

/// A dataset over Parquet files. Its samples are the rows of all files in their order, and its
/// fields are read from columns by the rules of `arrow_dataset`. The first read of a row decodes
/// its whole row group, which is cached within `cache_bytes`. Therefore read the rows in the order
/// `block_shuffled`:
///
///     ps::parquet_dataset<digit> digits{{"train-0.parquet", "train-1.parquet"}};
///     ps::loader loader{digits, ps::block_shuffled{.seed = 1, .block = digits.block()}, {...}};
///
/// If a batch spans several groups, set `loader_options::tuning.chunk = digits.block()`, so that
/// each worker decodes a different group. With smaller chunks, several workers wait for the same
/// group.
///
/// The constructor checks types. Lengths and nulls are checked when a row group is decoded, so such
/// an error is thrown with that batch. Copies share files and row groups. Reading is thread-safe:
/// one thread decodes a row group. Other threads that need it read the other groups of their chunk
/// first, and then wait.
template <penstock::record_type Record>
class parquet_dataset {
 public:
  using record_type = Record;

  /// Opens the files `paths` and reads their footers. Throws `file_unreadable`; `file_corrupt`;
  /// `duplicate_entry` for a file that is listed twice; the errors of `arrow_dataset` for a file's
  /// types; and `option_error` if a row group is larger than `cache_bytes` or `paths` is empty.
  explicit parquet_dataset(const std::vector<std::string>& paths,
                           const parquet_options& options = {})
      : shared_(std::make_shared<shared>(paths, options)), layout_(extents_in_files(), 1) {
    for (const detail::parquet_group& one : shared_->all.groups()) {
      std::uint64_t bytes = 0;
      const bool is_beyond = __builtin_mul_overflow(one.rows, layout_.sample_bytes(), &bytes);
      if (!is_beyond && bytes <= options.cache_bytes) continue;
      if (is_beyond) bytes = (std::numeric_limits<std::uint64_t>::max)();
      detail::refuse_option("cache_bytes",
                            {"must be at least ", bytes, ", the bytes of a row group of ",
                             shared_->all.file_of(one).path()});
    }
  }
  /// Opens one file. Throws what the constructor for several files throws.
  explicit parquet_dataset(const std::string& path, const parquet_options& options = {})
      : parquet_dataset(std::vector{path}, options) {}

  /// Returns the number of samples, which is the number of rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return shared_->all.size(); }
  /// Returns the extents of each sample. The first row determines dynamic extents.
  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return layout_.extents(); }
  /// Returns the number of rows of the largest row group, at least 1: a block for `block_shuffled`.
  [[nodiscard]] std::uint64_t block() const noexcept { return shared_->all.block(); }
  /// Returns the number of row groups.
  [[nodiscard]] std::size_t row_groups() const noexcept { return shared_->all.groups().size(); }
  /// Returns the number of row groups decoded so far. An epoch decodes each group once unless the
  /// order alternates between more groups than fit in `cache_bytes`.
  [[nodiscard]] std::uint64_t decoded() const { return shared_->cache.made(); }
  /// Returns the bytes of the decoded row groups in memory now.
  [[nodiscard]] std::uint64_t held_bytes() const { return shared_->cache.held(); }
  /// Returns messages for a log about columns that are slow to decode and about files without rows.
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

  /// Advises the system to read the selected columns of the row groups of `indices` into the page
  /// cache. A loader with `loader_options::lookahead_bytes` calls this. Decodes nothing.
  void prefetch_hint(std::span<const std::uint64_t> indices) const noexcept {
    shared_->all.prefetch_hint(indices);
  }
  /// Returns the stored bytes of the row group that contains row `index`, divided by the group's
  /// rows. Returns 0 if the index is out of range.
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

    // Maps the columns of a file, or of a group in it, to the fields.
    [[nodiscard]] detail::table_columns columns_of(const ArrowSchema& schema,
                                                   const std::string& path) const {
      return {schema, detail::wishes_of(std::type_identity<Record>{}), options.table, path};
    }

    // Returns the leaves that the fields read. Throws if their types do not match.
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

  // Returns the extents of each sample, which the types in the first file determine, or otherwise
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

  // Consecutive samples of a chunk that lie in one row group.
  struct chunk_part {
    std::size_t group;
    std::uint64_t bytes;  // size of the group
    std::size_t begin;
    std::size_t end;
  };

  // Returns the part that begins with sample `i`.
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
