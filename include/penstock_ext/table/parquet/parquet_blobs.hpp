// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/threads/support/group_cache.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/arrow_blobs.hpp>
#include <penstock_ext/table/arrow_table.hpp>
#include <penstock_ext/table/detail/columns.hpp>
#include <penstock_ext/table/parquet/detail/parquet_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Which columns of Parquet files are what of their blobs, and how the files are read.
struct parquet_blobs_options {
  /// The columns, as `arrow_blobs` takes them.
  arrow_blobs_options columns = {};
  /// The most bytes of decoded row groups that are held, at least those of the largest one; as the
  /// footer counts them, before compression. Values that a dictionary has once count once, and
  /// decode to more.
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

/// The byte strings in a column of Parquet files, as Hugging Face's datasets have pictures: a
/// `blob_source`.
///
///     ps::parquet_blobs photos{paths, {.columns = {.blob = "image.bytes", .label = "label"}}};
///     auto data = photos | ps::decode_images<ps::jpeg_decoder>(ps::random_resized_crop{224});
///
/// A row group is decoded as a whole when one of its rows is asked for, and held within
/// `cache_bytes`; so read it by `block_shuffled{.block = photos.block()}`. Copies share files and
/// row groups. Reading is thread-safe: a row group is decoded by one thread, and those that want it
/// wait.
class parquet_blobs {
 public:
  /// Opens the files `paths` and reads their footers. Throws `file_unreadable`, `file_corrupt`,
  /// what `arrow_blobs` throws for a file's types, and `option_error` where a row group is larger
  /// than `cache_bytes` or there is no path.
  explicit parquet_blobs(const std::vector<std::string>& paths,
                         const parquet_blobs_options& options)
      : shared_(std::make_shared<shared>(paths, options)) {
    for (const detail::parquet_group& one : shared_->all.groups()) {
      const std::uint64_t bytes = shared_->group_bytes.emplace_back(shared_->all.bytes(one));
      if (bytes <= options.cache_bytes) continue;
      detail::refuse_option("cache_bytes",
                            {"must be ", bytes, " at least, the bytes of a row group of ",
                             shared_->all.file_of(one).path()});
    }
  }

  /// How many blobs there are: the rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return shared_->all.size(); }
  /// How many rows the largest row group has, 1 at least: a block for `block_shuffled`.
  [[nodiscard]] std::uint64_t block() const noexcept { return shared_->all.block(); }
  /// How many row groups were decoded so far.
  [[nodiscard]] std::uint64_t decoded() const { return shared_->cache.made(); }

  /// The bytes of row `index`, copied to `buffer`. Throws `index_error`, `file_unreadable`,
  /// `file_changed` where the file was written to or cut since it was opened, `file_corrupt`, and
  /// `null_in_column` and `table_error` for a label of 2^63 or more, with the row as the file
  /// counts it.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    const auto [group, row] = find(index);
    const auto found = (*group).bytes(row, buffer);
    const auto room = buffer.room_for(found.size());
    std::copy(found.begin(), found.end(), room.begin());
    return room;
  }
  /// The label of row `index`. Throws as `bytes`.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    const auto [group, row] = find(index);
    return (*group).label(row);
  }
  /// What names row `index`: the key, or the file and its row. Throws as `bytes`.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    if (!shared_->options.columns.key.empty()) {
      const auto [group, row] = find(index);
      return (*group).key(row);
    }
    if (index >= size()) throw index_error("parquet_blobs", index, size());
    const std::size_t number = shared_->all.group_of(index);
    const detail::parquet_group& of = shared_->all.groups()[number];
    return shared_->all.file_of(of).path() + ", row " +
           std::to_string(of.first_row + index - shared_->all.first_row(number));
  }

  /// Has the system read the row group of row `index`, its columns that are read, unless it was
  /// asked to since that was read last. It is decoded when it is needed.
  void prefetch(std::uint64_t index) const noexcept { shared_->all.prefetch_hint({&index, 1}); }
  /// The share of row `index` in its row group's bytes in the file; 0 for one out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    return shared_->all.storage_size(index);
  }

 private:
  using cache_type = detail::group_cache<arrow_blobs>;

  struct shared {
    shared(const std::vector<std::string>& paths, const parquet_blobs_options& given)
        : all(paths, given.verify, given.direct,
              [&](const auto& file) { return leaves_in(file, given.columns); }),
          options(given),
          cache(given.cache_bytes) {}

    detail::parquet_groups all;
    parquet_blobs_options options;
    std::vector<std::uint64_t> group_bytes;  // of each row group, by the footer
    cache_type cache;
  };

  // The leaves that are read, in the file's order. Throws where they are not what is wanted.
  [[nodiscard]] static std::vector<int> leaves_in(const detail::parquet_file& file,
                                                  const arrow_blobs_options& names) {
    if (names.blob.empty()) detail::refuse_option("blob", {"must name a column"});
    const ArrowSchema& schema = file.schema();
    std::vector<detail::column_path> paths{
        detail::plan_blobs(schema, file.path(), names.blob).path};
    if (!names.key.empty()) {
      paths.push_back(detail::plan_blobs(schema, file.path(), names.key).path);
    }
    if (!names.label.empty()) {
      paths.push_back(detail::plan_labels(schema, file.path(), names.label).path);
    }
    std::vector<int> all = file.leaves(paths);
    std::sort(all.begin(), all.end());
    return all;
  }

  [[nodiscard]] std::pair<cache_type::lease, std::uint64_t> find(std::uint64_t index) const {
    if (index >= size()) throw index_error("parquet_blobs", index, size());
    const std::size_t number = shared_->all.group_of(index);
    auto held =
        shared_->cache.get(number, shared_->group_bytes[number], [&] { return decode(number); });
    shared_->all.note_read(number);
    return {std::move(held), index - shared_->all.first_row(number)};
  }

  [[nodiscard]] arrow_blobs decode(std::size_t number) const {
    const detail::parquet_group& of = shared_->all.groups()[number];
    return {shared_->all.decode(number), shared_->options.columns, shared_->all.file_of(of).path(),
            of.first_row};
  }

  std::shared_ptr<shared> shared_;
};

static_assert(blob_source<parquet_blobs>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
