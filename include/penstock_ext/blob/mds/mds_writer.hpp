// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/blob/blob_error.hpp>
#include <penstock_ext/blob/detail/blob_file.hpp>
#include <penstock_ext/blob/mds/detail/mds_index.hpp>
#include <penstock_ext/blob/mds/mds_column.hpp>
#include <penstock_ext/blob/mds/mds_compression.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/report/report_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How `mds_writer` writes shards.
struct mds_writer_options {
  /// The most bytes of a shard, before it is compressed, unless one sample has more.
  std::uint64_t shard_bytes = std::uint64_t{1} << 26;
  /// How shards are compressed: `zstd{3}` of `penstock_ext/files/zstd/zstd.hpp`; by default not at all.
  mds_compression compression = {};
  /// The sums that index.json has of each file: "xxh64", "sha1", "sha256". Readers compare them if
  /// asked to.
  std::vector<std::string> hashes = {};
};

namespace detail {

/// `text`, which is UTF-8, as a string of JSON.
[[nodiscard]] inline std::string json_string(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20) {
      ((quoted += "\\u00") += digits[byte >> 4U]) += digits[byte & 0xfU];
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted += '"';
}

/// An array of JSON out of `text_of(one)` of each of `all`.
template <class All, class TextOf>
[[nodiscard]] std::string json_list(const All& all, const TextOf& text_of) {
  std::string list;
  for (const auto& one : all) list += (list.empty() ? "" : ", ") + text_of(one);
  return '[' + list + ']';
}

/// Sums as an object of JSON, sorted by their names.
[[nodiscard]] inline std::string json_sums(std::vector<mds_sum> sums) {
  std::sort(sums.begin(), sums.end(),
            [](const mds_sum& one, const mds_sum& other) { return one.name < other.name; });
  std::string text;
  for (const mds_sum& one : sums) {
    text += (text.empty() ? "" : ", ") + json_string(one.name) + ": " + json_string(one.digits);
  }
  return '{' + text + '}';
}

/// A file as an object of JSON.
[[nodiscard]] inline std::string json_file(const std::string& name, std::uint64_t bytes,
                                           const std::vector<mds_sum>& sums) {
  return "{\"basename\": " + json_string(name) + ", \"bytes\": " + std::to_string(bytes) +
         ", \"hashes\": " + json_sums(sums) + '}';
}

/// What a shard says of its columns, in two halves: an index has more members between them. The
/// bytes are those that Python's json.dumps(sort_keys=True) makes.
struct mds_config_text {
  std::string columns;  ///< up to "hashes"
  std::string limit;    ///< "size_limit"
  std::string version;  ///< "version"

  /// Of shards of these columns.
  mds_config_text(std::span<const mds_column> of, const mds_writer_options& options)
      : columns("{\"column_encodings\": " +
                json_list(of, [](const mds_column& one) { return json_string(one.encoding); }) +
                ", \"column_names\": " +
                json_list(of, [](const mds_column& one) { return json_string(one.name); }) +
                ", \"column_sizes\": " +
                json_list(of,
                          [](const mds_column& one) {
                            return one.size == 0 ? std::string{"null"} : std::to_string(one.size);
                          }) +
                ", \"compression\": " +
                (options.compression ? json_string(options.compression.name()) : "null") +
                ", \"format\": \"mds\", \"hashes\": " +
                json_list(options.hashes, [](const std::string& one) { return json_string(one); })),
        limit(", \"size_limit\": " + std::to_string(options.shard_bytes)),
        version(", \"version\": 2") {}

  /// What a shard has between its offsets and its samples.
  [[nodiscard]] std::string in_shard() const { return columns + limit + version + '}'; }

  /// What an index has of a shard.
  [[nodiscard]] std::string in_index(const mds_shard_entry& shard) const {
    return columns + ", \"raw_data\": " + json_file(shard.name, shard.bytes, shard.sums) +
           ", \"samples\": " + std::to_string(shard.samples) + limit + version +
           ", \"zip_data\": " +
           (shard.zipped.empty() ? "null"
                                 : json_file(shard.zipped, shard.zipped_bytes, shard.zipped_sums)) +
           '}';
  }
};

}  // namespace detail

/// Writes samples into a folder of MDS shards, which `mds_shards` and Mosaic's StreamingDataset
/// read: the same bytes as MDSWriter makes of them, but those that a compression makes.
///
///     mds_writer out{"tokens/train", {{"tokens", "ndarray:uint16:2048"}}, {.hashes = {"xxh64"}}};
///     out.add({std::as_bytes(std::span{row})});
///     out.finish();
///
/// Each shard appears in the folder when it is whole, and index.json after all of them, on the disk
/// too: what is left of a writer that was not finished, or of a machine that stopped, is no data
/// set. Keeps the samples of one shard in memory, and twice while it is written; once more where it
/// is compressed. Not thread-safe.
class mds_writer {
 public:
  /// Writes to `folder`, which is made where it is missing. Of the columns, name and encoding
  /// count. Throws `folder_error` where there is an index.json already, or no folder can be made;
  /// `option_error` for columns that are none, twice, or of an encoding that is not written, and
  /// for hashes that are not known.
  mds_writer(std::string folder, std::vector<mds_column> columns, mds_writer_options options = {})
      : folder_(std::move(folder)),
        columns_(sorted(std::move(columns), order_)),
        options_(checked(std::move(options))),
        config_(columns_, options_) {
    std::error_code problem;
    std::filesystem::create_directories(folder_, problem);
    if (problem) throw folder_error(folder_, "a folder that can be made", problem.message());
    struct ::stat status {};
    if (::stat(index_path().c_str(), &status) == 0) {
      throw folder_error(folder_, "a folder without an index.json", "one",
                         "remove it with its shards, or choose another folder");
    }
  }

  /// Of shards of at most `shard_bytes`, as they are.
  mds_writer(std::string folder, std::vector<mds_column> columns, std::uint64_t shard_bytes)
      : mds_writer(std::move(folder), std::move(columns),
                   mds_writer_options{.shard_bytes = shard_bytes}) {}

  /// Appends a sample: the bytes of each column's value, in the order in which the columns were
  /// given. Throws std::invalid_argument for values of another number or size than the columns
  /// have, and for a sample that is too large for a shard; `report_error` where a shard can't be
  /// written.
  void add(std::span<const std::span<const std::byte>> values) {
    const std::uint64_t bytes = require(values);
    if (!sizes_.empty() && options_.shard_bytes < shard_size(bytes)) flush();
    if (shard_size(bytes) > most_bytes)
      refuse(std::to_string(bytes) +
             " bytes in a sample, and a "
             "shard has less than 2^32");
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].size == 0) append_number(samples_, values[order_[i]].size());
    }
    for (const std::size_t which : order_) {
      const std::span<const std::byte> value = values[which];
      samples_.append(reinterpret_cast<const char*>(value.data()), value.size());
    }
    sizes_.push_back(bytes);
  }
  /// Takes the values as a list.
  void add(std::initializer_list<std::span<const std::byte>> values) {
    add(std::span<const std::span<const std::byte>>{values.begin(), values.size()});
  }

  /// Writes the last shard and index.json, and returns when the disk has them; nothing may be added
  /// after it. Throws `report_error`.
  void finish() {
    if (!sizes_.empty()) flush();
    std::string text = "{\"shards\": [";
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      text += (i == 0 ? "" : ", ") + config_.in_index(shards_[i]);
    }
    require_done(detail::sync_folder(folder_), folder_, "the names of the shards");
    write(index_path(), text + "], \"version\": 2}", "the index");
    require_done(detail::sync_folder(folder_), folder_, "the name of the index");
  }

  /// How many shards were written.
  [[nodiscard]] std::size_t shards() const noexcept { return shards_.size(); }

 private:
  static constexpr std::uint64_t most_bytes = (std::numeric_limits<std::uint32_t>::max)();

  // The columns by their names, as Mosaic has them, and where each of them was.
  [[nodiscard]] static std::vector<mds_column> sorted(std::vector<mds_column> columns,
                                                      std::vector<std::size_t>& order) {
    if (columns.empty() || columns.size() > detail::most_mds_columns) {
      throw option_error("columns", "must be 1 to 1000, are " + std::to_string(columns.size()));
    }
    order.resize(columns.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
      return columns[one].name < columns[other].name;
    });
    std::vector<mds_column> result;
    for (const std::size_t which : order) {
      mds_column& one = columns[which];
      if (!result.empty() && result.back().name == one.name) {
        throw option_error("columns", "'" + one.name + "' is there twice");
      }
      using kind = detail::mds_encoding::kind;
      const detail::mds_encoding encoding = detail::mds_encoding_of(one.encoding);
      if (encoding.is == kind::pickle || encoding.is == kind::unknown) {
        throw option_error("columns", "'" + one.name + "' is '" + one.encoding +
                                          "', which is not written: take bytes");
      }
      one.size = encoding.size;
      result.push_back(std::move(one));
    }
    return result;
  }

  [[nodiscard]] static mds_writer_options checked(mds_writer_options options) {
    if (options.shard_bytes == 0 || options.shard_bytes > most_bytes) {
      throw option_error("shard_bytes",
                         "must be 1 to 2^32 - 1, is " + std::to_string(options.shard_bytes));
    }
    std::sort(options.hashes.begin(), options.hashes.end());  // as Mosaic wants them
    for (const std::string& name : options.hashes) {
      const auto count = std::count(options.hashes.begin(), options.hashes.end(), name);
      if (detail::mds_summer::of(name) && count == 1) continue;
      throw option_error("hashes", "must be xxh64, sha1 or sha256, each once, has '" + name + "'");
    }
    return options;
  }

  [[noreturn]] static void refuse(const std::string& found) {
    throw std::invalid_argument("mds_writer: found " + found);
  }

  // The bytes of a sample of these values.
  [[nodiscard]] std::uint64_t require(std::span<const std::span<const std::byte>> values) const {
    if (values.size() != columns_.size()) {
      refuse(std::to_string(values.size()) + " values for " + std::to_string(columns_.size()) +
             " columns");
    }
    std::uint64_t bytes = detail::mds_head_bytes(columns_);
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::uint64_t size = values[order_[i]].size();
      if (columns_[i].size != 0 && columns_[i].size != size) {
        refuse(std::to_string(size) + " bytes for column '" + columns_[i].name +
               "', whose values have " + std::to_string(columns_[i].size));
      }
      bytes += size;
    }
    return bytes;
  }

  // The bytes of the shard with one more sample.
  [[nodiscard]] std::uint64_t shard_size(std::uint64_t sample) const {
    return 4 + 4 * (std::uint64_t{sizes_.size()} + 2) + config_.in_shard().size() +
           samples_.size() + sample;
  }

  static void append_number(std::string& bytes, std::uint64_t number) {
    for (unsigned shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>(static_cast<unsigned char>(number >> shift & 0xffU));
    }
  }

  [[nodiscard]] std::string index_path() const {
    return detail::joined_path(folder_, "index.json");
  }

  static void write(const std::string& path, std::string_view bytes, const char* what) {
    require_done(detail::write_whole_file(path, bytes, detail::disk_has::at_once), path, what);
  }
  static void require_done(int problem, const std::string& path, const char* what) {
    if (problem != 0) throw report_error(path, what, problem);
  }

  void flush() {
    std::string number = std::to_string(shards_.size());
    if (number.size() < 5) number.insert(0, 5 - number.size(), '0');
    detail::mds_shard_entry entry{.name = "shard." + number + ".mds", .samples = sizes_.size()};
    const std::string config = config_.in_shard();
    std::string bytes;
    append_number(bytes, sizes_.size());
    std::uint64_t end = 4 + 4 * (std::uint64_t{sizes_.size()} + 1) + config.size();
    append_number(bytes, end);
    for (const std::uint64_t size : sizes_) append_number(bytes, end += size);
    bytes += config;
    bytes += samples_;
    entry.bytes = bytes.size();
    entry.sums = detail::mds_sums_of(bytes, options_.hashes);
    if (!options_.compression) {
      write(detail::joined_path(folder_, entry.name), bytes, "the shard");
    } else {
      const std::vector<std::byte> packed =
          options_.compression.packed(std::as_bytes(std::span{bytes}));
      const std::string_view text{reinterpret_cast<const char*>(packed.data()), packed.size()};
      entry.zipped = entry.name + '.' + options_.compression.family();
      entry.zipped_bytes = packed.size();
      entry.zipped_sums = detail::mds_sums_of(text, options_.hashes);
      write(detail::joined_path(folder_, entry.zipped), text, "the shard");
    }
    shards_.push_back(std::move(entry));
    samples_.clear();
    sizes_.clear();
  }

  std::string folder_;
  std::vector<std::size_t> order_;   // of the columns: the place in which each was given
  std::vector<mds_column> columns_;  // by name
  mds_writer_options options_;
  detail::mds_config_text config_;
  std::vector<detail::mds_shard_entry> shards_;
  std::string samples_;               // of the shard that is being filled
  std::vector<std::uint64_t> sizes_;  // of each of them
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
