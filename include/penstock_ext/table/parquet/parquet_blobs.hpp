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
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/blob/support/group_cache.hpp>
#include <penstock_ext/table/arrow_abi.hpp>
#include <penstock_ext/table/arrow_blobs.hpp>
#include <penstock_ext/table/arrow_table.hpp>
#include <penstock_ext/table/detail/columns.hpp>
#include <penstock_ext/table/parquet/detail/parquet_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options of `parquet_blobs`.
struct parquet_blobs_options {
  /// The columns to read, as in `arrow_blobs`.
  arrow_blobs_options columns = {};
  /// Maximum size of the cached row groups in bytes, at least the size of the largest row group.
  /// The sizes are uncompressed sizes from the footer, which counts a dictionary value once. A
  /// decoded group can therefore be larger.
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

/// A `blob_source` for a column of byte strings in Parquet files, such as images in Hugging Face
/// datasets.
///
///     ps::parquet_blobs photos{paths, {.columns = {.blob = "image.bytes", .label = "label"}}};
///     auto data = photos | ps::decode_images<ps::jpeg_decoder>(ps::random_resized_crop{224});
///
/// The first read of a row decodes its whole row group, which stays in a cache of `cache_bytes`.
/// Therefore read the rows in the order `block_shuffled{.block = photos.block()}`. Copies share
/// files and row groups. Reading is thread-safe. One thread decodes a row group, and other threads
/// that need that row group wait.
class parquet_blobs {
 public:
  /// Opens the files at `paths` and reads their footers. Throws `file_unreadable`, `file_corrupt`,
  /// `duplicate_entry` for a file that is listed twice, the type errors of `arrow_blobs`, and
  /// `option_error` if a row group exceeds `cache_bytes` or `paths` is empty.
  explicit parquet_blobs(const std::vector<std::string>& paths,
                         const parquet_blobs_options& options)
      : shared_(std::make_shared<shared>(paths, options)) {
    for (const detail::parquet_group& one : shared_->all.groups()) {
      const std::uint64_t bytes = shared_->group_bytes.emplace_back(shared_->all.bytes(one));
      if (bytes <= options.cache_bytes) continue;
      detail::throw_option_error("cache_bytes",
                                 {"must be at least ", bytes, ", the bytes of a row group of ",
                                  shared_->all.file_of(one).path()});
    }
  }

  /// Returns the number of blobs (rows).
  [[nodiscard]] std::uint64_t size() const noexcept { return shared_->all.size(); }
  /// Returns the number of rows in the largest row group, at least 1. Use it as the block size of
  /// `block_shuffled`.
  [[nodiscard]] std::uint64_t block() const noexcept { return shared_->all.block(); }
  /// Returns the number of row groups decoded so far.
  [[nodiscard]] std::uint64_t decoded() const { return shared_->cache.made(); }

  /// Copies the bytes of row `index` to `buffer` and returns them. Throws `index_error`,
  /// `file_unreadable`, `file_changed` if the file was modified or truncated since it was opened,
  /// `file_corrupt`, `null_in_column`, and `table_error` if a label is 2^63 or more. Row numbers in
  /// errors are relative to the file.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    const auto [group, row] = find(index);
    const auto found = (*group).bytes(row, buffer);
    const auto room = buffer.room_for(found.size());
    std::copy(found.begin(), found.end(), room.begin());
    return room;
  }
  /// Returns the label of row `index`. Throws the same errors as `bytes`.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    const auto [group, row] = find(index);
    return (*group).label(row);
  }
  /// Returns the key of row `index`, or the file name and row index without a key column. Throws
  /// the same errors as `bytes`.
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

  /// Starts a read of row `index`'s row group into the page cache. Reads only the selected columns
  /// and decodes nothing. Does nothing if the group was already requested since its last read.
  void prefetch(std::uint64_t index) const noexcept { shared_->all.prefetch_hint({&index, 1}); }
  /// Returns the compressed size in bytes of the row group that contains row `index`, divided by
  /// its number of rows. Returns 0 if the index is out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    return shared_->all.storage_size(index);
  }

 private:
  using cache_type = detail::group_cache<arrow_blobs>;

  struct shared {
    shared(const std::vector<std::string>& paths, const parquet_blobs_options& given)
        : all(detail::resolve_repeated_paths(paths, given.duplicates), given.verify, given.direct,
              [&](const auto& file) { return leaves_in(file, given.columns); }),
          options(given),
          cache(given.cache_bytes) {}

    detail::parquet_groups all;
    parquet_blobs_options options;
    std::vector<std::uint64_t> group_bytes;  // row group sizes from the footer
    cache_type cache;
  };

  // Returns the leaves to read, in file order. Throws if their types do not match.
  [[nodiscard]] static std::vector<int> leaves_in(const detail::parquet_file& file,
                                                  const arrow_blobs_options& names) {
    if (names.blob.empty()) detail::throw_option_error("blob", {"must name a column"});
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
    shared_->all.record_read(number);
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
