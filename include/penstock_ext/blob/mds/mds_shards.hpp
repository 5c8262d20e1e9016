// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/detail/blob_file.hpp>
#include <penstock_ext/blob/mds/detail/mds_encoding.hpp>
#include <penstock_ext/blob/mds/detail/mds_index.hpp>
#include <penstock_ext/blob/mds/detail/mds_sample.hpp>
#include <penstock_ext/blob/mds/detail/mds_shard.hpp>
#include <penstock_ext/blob/mds/detail/mds_sum.hpp>
#include <penstock_ext/blob/mds/detail/unpacked_shards.hpp>
#include <penstock_ext/blob/mds/mds_column.hpp>
#include <penstock_ext/blob/mds/mds_shards_options.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/file_bytes.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The samples of a folder of MDS shards, as Mosaic's MDSWriter and `pack_mds` write them: a
/// `blob_source` with random access.
///
///     mds_shards photos{"imagenet/train", {.blob = "image", .label = "label"}};
///     mds_shards texts{"c4/train"};                    // the one column of bytes or text
///
/// index.json names the shards, and their order is that of the samples. Their tables of offsets are
/// read at the construction: 4 bytes a sample. A value comes as the bytes that it is stored in,
/// pictures as files of their format, arrays in C order, an encoding that is not known, as
/// "jpeg_array", just so; pickled values are refused. Compressed shards have no random access: they
/// are read unpacked, from beside them or from a folder that `unpacked` names, which is filled at
/// the construction.
///
/// A shard is as it was when it was opened, as with `tar_shards`: one that is written to gives
/// `file_changed`, as does a replaced one beyond `most_open`. Movable, not copyable. Reading is
/// thread-safe. Names in index.json lead to files in the folder or below it, and to no others.
class mds_shards {
 public:
  /// Opens the shards that `folder`/index.json names. Throws `file_unreadable`; `file_format_error`
  /// for another index, for a compressed shard that can't be unpacked, and for a shard without a
  /// sum that is known, if asked to `verify`; `file_truncated`, `length_mismatch` and `file_corrupt`
  /// for a damaged shard; `option_error` for a column that is not there or can't be read so, and
  /// for shards beyond `most_unpacked`; `folder_error` and `report_error` where they can't be
  /// written.
  explicit mds_shards(const std::string& folder, const mds_shards_options& options = {})
      : index_path_(detail::joined_path(folder, "index.json")), options_(options) {
    const std::vector<std::byte> text = detail::read_file(index_path_, most_index_bytes);
    const std::string_view chars{reinterpret_cast<const char*>(text.data()), text.size()};
    detail::mds_index index = detail::mds_index_reader{chars, index_path_}.read();
    columns_ = std::move(index.columns);
    head_bytes_ = static_cast<std::size_t>(detail::mds_head_bytes(columns_));
    shards_ = detail::open_mds_shards(folder, index.shards, options);
    for (const detail::mds_shard_entry& entry : index.shards) {
      ends_.push_back(size() + entry.samples);
    }
    const auto without =
        std::count_if(index.shards.begin(), index.shards.end(),
                      [](const auto& one) { return detail::comparable_sum(one.sums) == nullptr; });
    if (without != 0) {
      warnings_.push_back(index_path_ + " has no sum by xxh64, sha1 or sha256 for " +
                          std::to_string(without) + " of " + std::to_string(shards_.size()) +
                          " shards: a flipped bit in them is not found; write them with hashes, "
                          "and read them with verify");
    }
    if (shards_.empty()) return;
    blob_ = options.blob.empty() ? only_blob() : readable_column(options.blob, "blob");
    if (!options.label.empty()) {
      label_ = readable_column(options.label, "label");
      using kind = detail::mds_encoding::kind;
      const auto is = detail::mds_encoding_of(columns_[*label_].encoding).is;
      if (is != kind::integer && is != kind::digits) {
        throw option_error("label", "column '" + options.label + "' is " +
                                        columns_[*label_].encoding + ", and no whole number");
      }
    }
  }

  /// How many samples there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  /// The columns, in the order in which samples have them.
  [[nodiscard]] std::span<const mds_column> columns() const noexcept { return columns_; }
  /// A sentence for people where shards have no sums that `verify` could compare, so that nothing
  /// would find a flipped bit; it also comes with `loader::footprint`.
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  /// How many shards there are.
  [[nodiscard]] std::size_t shards() const noexcept { return shards_.size(); }

  /// The blob of sample `index`, read into `buffer`. Throws `index_error`, `file_unreadable`,
  /// `file_changed`, `file_corrupt` for columns that do not fill the sample, and
  /// `file_format_error` above `max_bytes`.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    return value(find(index), blob_, buffer);
  }

  /// The value of the column `name` of sample `index`, read into `buffer`, as `bytes`. Throws
  /// `option_error` besides, for a column that is not there or is pickled.
  [[nodiscard]] std::span<const std::byte> column(std::uint64_t index, std::string_view name,
                                                  blob_buffer& buffer) const {
    return value(find(index), readable_column(name, "name"), buffer);
  }

  /// The label of sample `index`. Throws as `bytes`, and `file_format_error` for a text that is no
  /// whole number, and one of more than 63 bits.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    const place at = find(index);
    if (!label_) return 0;
    require_head(at);
    std::array<std::byte, 4 * detail::most_mds_columns> memory;
    const auto head = std::span{memory}.first(head_bytes_);
    at.shard->file.read_unchanged(at.sample.begin, head);
    const detail::mds_place lies = place_of(at, *label_, head);
    const std::uint64_t begin = at.sample.begin + lies.begin;
    constexpr std::uint64_t longest = 64;
    std::optional<std::int64_t> number;
    if (lies.size <= longest) {
      const auto bytes = std::span{memory}.first(static_cast<std::size_t>(lies.size));
      at.shard->file.read_unchanged(begin, bytes);
      number = detail::mds_number(detail::mds_encoding_of(columns_[*label_].encoding), bytes);
    }
    if (!number) {
      throw file_format_error(at.shard->file.path(), begin,
                              "a label, a whole number of 64 bits with its sign",
                              "another value of " + std::to_string(lies.size) + " bytes");
    }
    return *number;
  }

  /// The path of the shard, and the sample's number in it: "train/shard.00000.mds:17", also where
  /// it is read elsewhere, unpacked. Throws `index_error`.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    const place at = find(index);
    return at.shard->path + ':' + std::to_string(at.number);
  }

  /// Has the system read the sample ahead, by posix_fadvise; does nothing for an index out of
  /// range, and in shards beyond `most_open`.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size()) return;
    const place at = place_at(index);
    at.shard->file.prefetch(at.sample.begin, at.sample.size);
  }
  /// The bytes of sample `index`; 0 for one out of range.
  [[nodiscard]] std::uint64_t stored_bytes(std::uint64_t index) const noexcept {
    return index < size() ? place_at(index).sample.size : 0;
  }

 private:
  static constexpr std::uint64_t most_index_bytes = std::uint64_t{1} << 32;

  struct place {
    const detail::mds_shard* shard;
    std::size_t number;  // in the shard
    detail::mds_place sample;
  };

  [[nodiscard]] std::string listed() const {
    std::string names;
    for (const mds_column& one : columns_) {
      names += (names.empty() ? "" : ", ") + one.name + " (" + one.encoding + ")";
    }
    return names;
  }

  [[nodiscard]] std::size_t only_blob() const {
    const auto differs = [](const mds_column& one) { return one.size == 0; };
    if (std::count_if(columns_.begin(), columns_.end(), differs) != 1) {
      throw option_error("blob", index_path_ + ": name one of the columns " + listed());
    }
    const auto found = std::find_if(columns_.begin(), columns_.end(), differs);
    return readable_column(found->name, "blob");
  }

  [[nodiscard]] std::size_t readable_column(std::string_view name, const char* option) const {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].name != name) continue;
      using kind = detail::mds_encoding::kind;
      const auto is = detail::mds_encoding_of(columns_[i].encoding).is;
      if (is != kind::pickle) return i;
      throw option_error(option, index_path_ + ": column '" + columns_[i].name + "' is " +
                                     columns_[i].encoding +
                                     ", and what is pickled may run any code: write it as bytes, a "
                                     "number, json or ndarray");
    }
    throw option_error(
        option, index_path_ + ": there is no column '" + std::string{name} + "' but " + listed());
  }

  [[nodiscard]] place place_at(std::uint64_t index) const noexcept {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto which = static_cast<std::size_t>(end - ends_.begin());
    const std::uint64_t first = which == 0 ? 0 : ends_[which - 1];
    const detail::mds_shard& shard = shards_[which];
    const auto number = static_cast<std::size_t>(index - first);
    return {&shard, number, shard.sample(number)};
  }
  [[nodiscard]] place find(std::uint64_t index) const {
    if (index >= size()) throw index_error("mds_shards", index, size());
    return place_at(index);
  }

  void require_head(const place& at) const {
    if (at.sample.size >= head_bytes_) return;
    throw file_corrupt(at.shard->file.path(), at.sample.begin,
                       "a sample of at least " + std::to_string(head_bytes_) + " bytes",
                       std::to_string(at.sample.size));
  }

  // Where a value lies in its sample, which starts with `head`.
  [[nodiscard]] detail::mds_place place_of(const place& at, std::size_t which,
                                           std::span<const std::byte> head) const {
    return detail::mds_value(columns_, which, head.first(head_bytes_), at.sample.size,
                             at.sample.begin, at.shard->file.path());
  }

  [[nodiscard]] std::span<const std::byte> value(const place& at, std::size_t which,
                                                 blob_buffer& buffer) const {
    if (at.sample.size > options_.max_bytes) {
      throw file_format_error(
          at.shard->file.path(), at.sample.begin,
          "at most " + std::to_string(options_.max_bytes) + " bytes (max_bytes)",
          std::to_string(at.sample.size));
    }
    require_head(at);
    const auto sample = buffer.room_for(static_cast<std::size_t>(at.sample.size));
    at.shard->file.read_unchanged(at.sample.begin, sample);
    const detail::mds_place lies = place_of(at, which, sample);
    return sample.subspan(static_cast<std::size_t>(lies.begin),
                          static_cast<std::size_t>(lies.size));
  }

  std::string index_path_;
  mds_shards_options options_;
  std::vector<mds_column> columns_;
  std::size_t head_bytes_ = 0;
  std::size_t blob_ = 0;
  std::optional<std::size_t> label_;
  std::vector<detail::mds_shard> shards_;
  std::vector<std::uint64_t> ends_;  // of the shards, in samples
  std::vector<std::string> warnings_;
};

static_assert(blob_source<mds_shards>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
