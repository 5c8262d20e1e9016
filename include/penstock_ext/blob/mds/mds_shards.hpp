// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <xxhash.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/mds/mds_index.hpp>
#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/file_source.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/files/support/parallel_for.hpp>
#include <penstock_ext/files/support/part_file.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Reads a shard's sample offsets. A shard file has this layout:
///
///     u32 n; u32 offsets[n + 1]; column descriptions as text; samples
///
/// Integers are little-endian. Offsets are relative to the start of the file, and the last offset
/// is the end of the file. Throws `file_truncated` if the file ends too early, `length_mismatch` if
/// the number of samples is not `samples`, and `file_corrupt` if an offset is invalid.
template <archive_bytes Source>
[[nodiscard]] std::vector<std::uint32_t> mds_offsets(const Source& file, std::uint64_t samples) {
  const auto truncated = [&](const std::string& what) {
    throw file_truncated(file.path(), file.size(), what, "the end of the file");
  };
  std::array<std::byte, 4> start{};
  if (file.read_at(0, start) < start.size()) truncated("the number of samples, 4 bytes");
  if (const std::uint64_t found = little_endian<4>(start.data()); found != samples) {
    throw length_mismatch(file.path(), 0, std::to_string(samples) + " samples, as in index.json",
                          std::to_string(found));
  }
  // Checked before allocation, because a damaged file may contain any count.
  const std::uint64_t table = 4 * (samples + 2);
  if (file.size() < table) truncated("a table of " + std::to_string(samples + 1) + " offsets");
  std::vector<std::uint32_t> offsets(static_cast<std::size_t>(samples) + 1);
  std::vector<std::byte> bytes(4 * offsets.size());
  if (file.read_at(4, bytes) < bytes.size()) truncated("a table of offsets");
  std::uint64_t before = table;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::uint64_t offset = little_endian<4>(bytes.data() + 4 * i);
    const std::uint64_t max = file.size();
    if (offset < before || offset > max) {
      throw file_corrupt(file.path(), 4 + 4 * std::uint64_t{i},
                         "an offset from " + std::to_string(before) + " to " + std::to_string(max),
                         std::to_string(offset));
    }
    before = offset;
    offsets[i] = static_cast<std::uint32_t>(offset);
  }
  if (before != file.size()) {
    throw file_corrupt(file.path(), table - 4,
                       "the end of the file, " + std::to_string(file.size()),
                       std::to_string(before));
  }
  return offsets;
}

/// Throws `length_mismatch` if the file size is not `expected` bytes.
inline void require_bytes(const shard_file& file, std::uint64_t expected) {
  if (file.size() == expected) return;
  throw length_mismatch(file.path(), (std::min)(file.size(), expected),
                        std::to_string(expected) + " bytes, as in index.json",
                        std::to_string(file.size()));
}

/// An open shard.
struct mds_shard {
  std::string path;  ///< Path in the folder of its index, even if the unpacked shard is read from
                     ///< another folder.
  shard_file file;
  std::vector<std::uint32_t> offsets;  ///< The sample offsets, followed by the end offset.

  /// Returns the byte range of sample `index`.
  [[nodiscard]] mds_place sample(std::size_t index) const noexcept {
    return {offsets[index], offsets[index + 1] - std::uint64_t{offsets[index]}};
  }
};

/// Opens the file `path` of the shard `entry`, which belongs to the index in `folder`. Verifies the
/// checksum if `verify` is true. Throws `file_unreadable`, `length_mismatch` if the length differs,
/// and errors from `mds_offsets` and `require_checksum`.
[[nodiscard]] inline mds_shard open_mds_shard(const std::string& folder,
                                              const mds_shard_entry& entry, const std::string& path,
                                              bool verify) {
  shard_file file{path};
  require_bytes(file, entry.bytes);
  if (verify) require_checksum(file, entry.checksums, ": remove it, and copy or unpack it again");
  std::vector<std::uint32_t> offsets = mds_offsets(file, entry.samples);
  return {joined_path(folder, entry.name), std::move(file), std::move(offsets)};
}

}  // namespace detail

/// A whole-file compression codec, such as `zstd` in `penstock_ext/files/zstd/zstd.hpp`.
/// `codec(path)` opens a file as a `byte_source` of the uncompressed content. `family()` returns
/// Mosaic's name of the compression, such as "zstd". Both functions must be thread-safe.
template <class C>
concept file_codec = requires(const C& codec, const std::string& path) {
  { codec(path) } -> byte_source;
  { codec.family() } -> std::convertible_to<std::string>;
};

/// A type-erased `file_codec`, or none, which makes `mds_shards` independent of compression
/// libraries. Copies share the codec.
class mds_compression {
 public:
  /// A function that fills its argument with the next bytes of a file's uncompressed content.
  /// Returns fewer bytes only at the end.
  using reader = std::function<std::size_t(std::span<std::byte>)>;

  /// Creates an object without a codec.
  mds_compression() = default;
  /// Wraps `codec`.
  template <class Codec>
    requires(!std::same_as<Codec, mds_compression> && file_codec<Codec>)
  mds_compression(const Codec& codec)
      : family_(codec.family()), open_([codec](const std::string& path) {
          using source = std::remove_cvref_t<decltype(codec(path))>;
          // The lambda must be copyable, but an open source is not.
          const std::shared_ptr<source> opened{new source(codec(path))};
          return reader{[opened](std::span<std::byte> out) { return opened->read(out); }};
        }) {}

  /// Returns true if a codec is set.
  explicit operator bool() const noexcept { return static_cast<bool>(open_); }
  /// Returns Mosaic's name of the compression, or "" if no codec is set.
  [[nodiscard]] const std::string& family() const noexcept { return family_; }
  /// Opens a compressed file. A codec must be set. Propagates errors from the codec's source.
  [[nodiscard]] reader open(const std::string& path) const { return open_(path); }

 private:
  std::string family_;
  std::function<reader(const std::string&)> open_;
};

/// Options of `mds_shards`.
struct mds_shards_options {
  /// Name of the blob column. If empty, the only column with values of variable size is used.
  std::string blob = {};
  /// Name of the integer label column. If empty, all labels are 0.
  std::string label = {};
  /// Maximum size in bytes of a sample with all its columns. A larger sample causes
  /// `file_format_error` before memory is allocated.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  /// Codec that unpacks compressed shards at construction, such as `zstd{}` from
  /// `penstock_ext/files/zstd/zstd.hpp`. Without a codec, a compressed shard is rejected unless its
  /// unpacked file is in the same folder.
  mds_compression compression = {};
  /// Folder for unpacked shards, created if missing. Existing files are reused, even if another
  /// process wrote them. The library writes to no other folder.
  std::string unpacked = {};
  /// Maximum total size in bytes of the unpacked shards in that folder. A larger total causes
  /// `option_error` before any shard is written.
  std::uint64_t max_unpacked = std::uint64_t{1} << 40;
  /// Handling of a shard that appears twice in index.json, possibly through a link. `keep` reads
  /// the shard twice.
  duplicate_action duplicates = duplicate_action::reject;
  /// If true, the constructor reads all shards and verifies their checksums from index.json (xxh64,
  /// sha1 or sha256).
  bool verify = false;
  /// Number of threads that unpack, verify and open shards at construction. The threads end before
  /// the constructor returns.
  std::size_t threads = 8;
  /// Number of shards that stay open. Each read from another shard opens and checks its file.
  std::size_t max_open = 512;
};

namespace detail {

/// Finds the shard files of an index, either in the index's folder or in the folder for unpacked
/// shards.
///
/// The name of an unpacked shard contains a hash of the compressed file's entry in index.json and
/// modification time. Data sets can therefore share a folder, and a replaced shard is unpacked
/// again. Concurrent processes start with different shards and skip shards that are already
/// unpacked.
class unpacked_shards {
 public:
  /// References the shards `entries` of the index in `folder`. All arguments must outlive this
  /// object.
  unpacked_shards(const std::string& folder, std::span<const mds_shard_entry> entries,
                  const mds_shards_options& options)
      : folder_(folder), entries_(entries), options_(options) {}

  /// Unpacks missing shards, and returns the path of each shard. Throws the same errors as the
  /// `mds_shards` constructor.
  [[nodiscard]] std::vector<std::string> paths() const {
    std::vector<std::string> all;
    std::vector<std::size_t> zipped;
    std::uint64_t bytes = 0;
    for (const mds_shard_entry& entry : entries_) {
      all.push_back(joined_path(folder_, entry.name));
      if (entry.zipped.empty() || file_size(all.back()) != none) continue;
      require_codec(entry, all.back());
      zipped.push_back(all.size() - 1);
      if (entry.bytes > options_.max_unpacked - bytes) reject_bytes();
      bytes += entry.bytes;
    }
    if (zipped.empty()) return all;
    make_folder();
    const auto first = static_cast<std::size_t>(::getpid()) * 7919 % zipped.size();
    const auto unpacked = open_in_parallel(zipped.size(), options_.threads, [&](std::size_t i) {
      const std::size_t which = zipped[(i + first) % zipped.size()];
      return std::pair{which, unpack(entries_[which])};
    });
    for (const auto& [which, path] : unpacked) all[which] = path;
    return all;
  }

 private:
  static constexpr std::uint64_t none = (std::numeric_limits<std::uint64_t>::max)();

  // Returns the size of a file, or `none` if the file does not exist.
  [[nodiscard]] static std::uint64_t file_size(const std::string& path) noexcept {
    struct ::stat status {};
    return ::stat(path.c_str(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : none;
  }

  // Returns a shell command that unpacks `from` to `to`, for messages.
  [[nodiscard]] static std::string command(std::string_view family, const std::string& from,
                                           const std::string& to) {
    if (family == "zstd") return "zstd -d " + from + " -o " + to;
    if (family == "br") return "brotli -d " + from + " -o " + to;
    if (family == "gz") return "gzip -dc " + from + " > " + to;
    if (family == "bz2") return "bzip2 -dc " + from + " > " + to;
    if (family == "snappy") return "python3 -m snappy -d " + from + ' ' + to;
    return "with the tool that packed it";
  }

  void require_codec(const mds_shard_entry& entry, const std::string& path) const {
    const std::string family = entry.compression.substr(0, entry.compression.find(':'));
    if (options_.compression && options_.compression.family() == family) return;
    const std::string zipped = joined_path(folder_, entry.zipped);
    const std::string known =
        options_.compression ? options_.compression.family() : std::string{"no compression"};
    const std::string by_option =
        family == "zstd" ? "give compression = zstd{} (penstock_ext/files/zstd/zstd.hpp, target "
                           "penstock::zstd) and a folder unpacked, or "
                         : "";
    throw file_format_error(
        zipped, 0, "a shard compressed with " + known + ", as set by the option compression",
        entry.compression + ": " + by_option + "unpack it to " + path + " (" +
            command(family, zipped, path) + "), and leave index.json unchanged");
  }

  [[noreturn]] void reject_bytes() const {
    std::uint64_t bytes = 0;
    for (const mds_shard_entry& entry : entries_) bytes += entry.zipped.empty() ? 0 : entry.bytes;
    throw_option_error("max_unpacked",
                       {"the compressed shards of ", folder_, " have ", bytes,
                        " bytes unpacked, which is more than ", options_.max_unpacked});
  }

  void make_folder() const {
    if (options_.unpacked.empty()) {
      throw option_error("unpacked", "must name a folder for the unpacked shards of " + folder_ +
                                         ", because nothing is written without it");
    }
    create_folder(options_.unpacked);
  }

  // Returns the path of the unpacked shard `entry`, whose compressed file is `zipped`.
  [[nodiscard]] std::string target_of(const mds_shard_entry& entry,
                                      const shard_file& zipped) const {
    std::string all = entry.name + '\0' + entry.zipped + '\0' + entry.compression;
    for (const auto* checksums : {&entry.checksums, &entry.zipped_checksums}) {
      for (const mds_checksum& one : *checksums) all += '\0' + one.name + '\0' + one.digits;
    }
    const auto add = [&](auto number) { all += '\0' + std::to_string(number); };
    add(entry.bytes);
    add(entry.zipped_bytes);
    add(entry.samples);
    add(zipped.stamp().seconds);
    add(zipped.stamp().nanoseconds);
    ::XXH64_canonical_t checksum;
    ::XXH64_canonicalFromHash(&checksum, ::XXH3_64bits(all.data(), all.size()));
    const std::string name = entry.name.substr(entry.name.rfind('/') + 1);
    return joined_path(options_.unpacked, name + '.' + hex_digits(checksum.digest));
  }

  [[noreturn]] static void reject_length(const shard_file& zipped, std::uint64_t expected,
                                         const std::string& found) {
    throw length_mismatch(zipped.path(), zipped.size(),
                          std::to_string(expected) + " bytes unpacked, as in index.json", found);
  }

  [[nodiscard]] std::string unpack(const mds_shard_entry& entry) const {
    const shard_file zipped{joined_path(folder_, entry.zipped)};
    require_bytes(zipped, entry.zipped_bytes);
    std::string target = target_of(entry, zipped);
    if (file_size(target) == entry.bytes) return target;
    if (options_.verify) require_checksum(zipped, entry.zipped_checksums, ": copy it again");
    const mds_compression::reader content = options_.compression.open(zipped.path());
    part_file out{target, "an unpacked shard"};
    const std::uint64_t bytes = out.add_all(content, [&](std::uint64_t done) {
      if (done > entry.bytes) reject_length(zipped, entry.bytes, "more");
    });
    if (bytes != entry.bytes) reject_length(zipped, entry.bytes, std::to_string(bytes));
    zipped.require_unchanged();
    out.finish();
    return target;
  }

  const std::string& folder_;
  std::span<const mds_shard_entry> entries_;
  const mds_shards_options& options_;
};

/// Finds index entries with the same shard name. If `action` is `reject`, throws `duplicate_entry`
/// for the first duplicate in the index `path`. If `action` is `take_last`, removes all but the
/// last entry of each name.
inline void resolve_duplicates(std::vector<mds_shard_entry>& entries, duplicate_action action,
                               const std::string& path) {
  if (action == duplicate_action::keep) return;
  std::unordered_map<std::string, std::size_t> places;
  std::vector<bool> is_replaced(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (const std::string* name : {&entries[i].name, &entries[i].zipped}) {
      const auto [before, is_new] = places.try_emplace(*name, i);
      if (is_new || name->empty()) continue;
      if (action == duplicate_action::reject) {
        throw duplicate_entry(path, entries[i].at, "the shard " + *name, path,
                              entries[before->second].at,
                              "write the index again, with a unique name for each shard, or set "
                              ".duplicates = duplicate_action::take_last");
      }
      is_replaced[before->second] = true;
      before->second = i;
    }
  }
  std::vector<mds_shard_entry> kept;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!is_replaced[i]) kept.push_back(std::move(entries[i]));
  }
  entries = std::move(kept);
}

/// Opens the shards of the index in `folder`. Throws the same errors as the `mds_shards`
/// constructor.
[[nodiscard]] inline std::vector<mds_shard> open_mds_shards(
    const std::string& folder, std::span<const mds_shard_entry> entries,
    const mds_shards_options& options) {
  const std::vector<std::string> paths = unpacked_shards{folder, entries, options}.paths();
  auto shards = open_in_parallel(entries.size(), options.threads, [&](std::size_t number) {
    mds_shard shard = open_mds_shard(folder, entries[number], paths[number], options.verify);
    if (number >= options.max_open) shard.file.close();
    return shard;
  });
  if (options.duplicates != duplicate_action::keep) {
    resolve_repeated_files(shards, options.duplicates);
  }
  return shards;
}

}  // namespace detail

/// A `blob_source` of the samples in a folder of MDS shards, as written by Mosaic's MDSWriter:
///
///     mds_shards photos{"imagenet/train", {.blob = "image", .label = "label"}};
///     mds_shards texts{"c4/train"};                    // the only variable-size column
///
/// index.json lists the shards in sample order. The constructor reads all offset tables, which
/// occupy 4 bytes for each sample. Values are returned as stored: images as encoded files, arrays
/// in C order, and unknown encodings such as "jpeg_array" unchanged. Pickled values are rejected.
/// Compressed shards have no random access, so their unpacked files are read, either from the same
/// folder or from the folder `unpacked`, which the constructor fills.
///
/// Shards must not change while the object exists. Reading throws `file_changed` if the shard was
/// modified, or if it is not among the `max_open` open shards and was replaced. Names in index.json
/// can refer only to files in the folder or below it. Movable, not copyable. Reading is
/// thread-safe.
class mds_shards {
 public:
  /// Opens the shards listed in `folder`/index.json. Throws:
  /// - `file_unreadable` if a file cannot be read
  /// - `file_format_error` if the index is invalid, if a compressed shard cannot be unpacked, or if
  ///   `verify` is set and a shard has no supported checksum
  /// - `duplicate_entry` if the index lists a shard twice
  /// - `file_truncated`, `length_mismatch`, `file_corrupt` if a shard is damaged
  /// - `option_error` if a column is missing or has an unsuitable type, or if the unpacked shards
  ///   exceed `max_unpacked`
  /// - `folder_error`, `file_unwritable` if unpacked shards cannot be written
  explicit mds_shards(const std::string& folder, const mds_shards_options& options = {})
      : index_path_(detail::joined_path(folder, "index.json")), options_(options) {
    const std::vector<std::byte> text = detail::read_file(index_path_, max_index_bytes);
    const std::string_view chars{reinterpret_cast<const char*>(text.data()), text.size()};
    detail::mds_index index = detail::mds_index_reader{chars, index_path_}.read();
    columns_ = std::move(index.columns);
    head_bytes_ = static_cast<std::size_t>(detail::mds_head_bytes(columns_));
    const std::size_t named = index.shards.size();
    detail::resolve_duplicates(index.shards, options.duplicates, index_path_);
    shards_ = detail::open_mds_shards(folder, index.shards, options);
    if (shards_.size() != named) {
      warnings_.push_back(
          index_path_ + ": left out " + std::to_string(named - shards_.size()) +
          " shards in favor of later shards of the same name, as set by .duplicates");
    }
    for (const detail::mds_shard& shard : shards_) {
      ends_.push_back(size() + shard.offsets.size() - 1);
    }
    const auto without = std::count_if(
        index.shards.begin(), index.shards.end(),
        [](const auto& one) { return detail::supported_checksum(one.checksums) == nullptr; });
    if (without != 0) {
      warnings_.push_back(index_path_ + " has no xxh64, sha1 or sha256 checksum for " +
                          std::to_string(without) + " of " + std::to_string(shards_.size()) +
                          " shards, so a flipped bit in them is not detected; write the shards "
                          "with hashes, and read them with verify");
    }
    if (shards_.empty()) return;
    blob_ = options.blob.empty() ? only_blob() : readable_column(options.blob, "blob");
    if (!options.label.empty()) {
      label_ = readable_column(options.label, "label");
      using kind = detail::mds_encoding::kind;
      const auto is = detail::mds_encoding_of(columns_[*label_].encoding).is;
      if (is != kind::integer && is != kind::digits) {
        throw option_error("label", "column '" + options.label + "' is " +
                                        columns_[*label_].encoding + ", which is not an integer");
      }
    }
  }

  /// Returns the number of samples.
  [[nodiscard]] std::uint64_t size() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  /// Returns the columns, in storage order.
  [[nodiscard]] std::span<const mds_column> columns() const noexcept { return columns_; }
  /// Returns warnings for the user, for example about shards without a checksum that `verify`
  /// supports, or shards that later duplicates replace. `loader::footprint` repeats the warnings.
  [[nodiscard]] const std::vector<std::string>& warnings() const noexcept { return warnings_; }
  /// Returns the number of shards.
  [[nodiscard]] std::size_t shards() const noexcept { return shards_.size(); }

  /// Returns the blob of sample `index`, read into `buffer`. Throws `index_error`,
  /// `file_unreadable`, `file_changed`, `file_corrupt` if the columns do not fill the sample, and
  /// `file_format_error` if the sample exceeds `max_bytes`.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    return value(find(index), blob_, buffer);
  }

  /// Returns the value of sample `index` in the column `name`, read into `buffer`. Throws the same
  /// errors as `bytes`, and `option_error` if the column is missing or pickled.
  [[nodiscard]] std::span<const std::byte> column(std::uint64_t index, std::string_view name,
                                                  blob_buffer& buffer) const {
    return value(find(index), readable_column(name, "name"), buffer);
  }

  /// Returns the label of sample `index`. Throws the same errors as `bytes`, and
  /// `file_format_error` if the label is not a signed 64-bit integer.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const {
    const place at = find(index);
    if (!label_) return 0;
    require_head(at);
    std::array<std::byte, 4 * detail::max_mds_columns> memory;
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
      throw file_format_error(at.shard->file.path(), begin, "a label, a signed 64-bit integer",
                              "another value of " + std::to_string(lies.size) + " bytes");
    }
    return *number;
  }

  /// Returns the shard path and the sample's index in the shard, for example
  /// "train/shard.00000.mds:17". The path stays the same if the unpacked shard is read from another
  /// folder. Throws `index_error` if `index` is out of range.
  [[nodiscard]] std::string key(std::uint64_t index) const {
    const place at = find(index);
    return at.shard->path + ':' + std::to_string(at.number);
  }

  /// Starts a background read of the sample with posix_fadvise. Does nothing if the index is out of
  /// range or the shard is beyond `max_open`.
  void prefetch(std::uint64_t index) const noexcept {
    if (index >= size()) return;
    const place at = place_at(index);
    at.shard->file.prefetch(at.sample.begin, at.sample.size);
  }
  /// Returns the size of sample `index` in bytes, or 0 if the index is out of range.
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const noexcept {
    return index < size() ? place_at(index).sample.size : 0;
  }

 private:
  static constexpr std::uint64_t max_index_bytes = std::uint64_t{1} << 32;

  struct place {
    const detail::mds_shard* shard;
    std::size_t number;  // index within the shard
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
      detail::throw_option_error(option,
                                 {index_path_, ": column '", name, "' is ", columns_[i].encoding,
                                  ", and a pickle can run arbitrary code: write the column as "
                                  "bytes, a number, json or ndarray"});
    }
    detail::throw_option_error(option,
                               {index_path_, ": there is no column '", name, "' but ", listed()});
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

  // Returns the byte range of a value in its file. `head` contains the first bytes of the sample.
  [[nodiscard]] detail::mds_place place_of(const place& at, std::size_t which,
                                           std::span<const std::byte> head) const {
    return detail::mds_value(columns_, which, head.first(head_bytes_), at.sample.size,
                             at.sample.begin, at.shard->file.path());
  }

  [[nodiscard]] std::span<const std::byte> value(const place& at, std::size_t which,
                                                 blob_buffer& buffer) const {
    if (at.sample.size > options_.max_bytes) {
      detail::throw_blob_too_large(at.shard->file.path(), at.sample.begin, options_.max_bytes,
                                   at.sample.size);
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
  std::vector<std::uint64_t> ends_;  // cumulative number of samples up to the end of each shard
  std::vector<std::string> warnings_;
};

static_assert(blob_source<mds_shards>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
