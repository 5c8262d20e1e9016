// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/blob/mds/detail/mds_encoding.hpp>
#include <penstock_ext/blob/mds/detail/mds_sum.hpp>
#include <penstock_ext/blob/mds/mds_column.hpp>
#include <penstock_ext/files/support/json_reader.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A shard as index.json has it.
struct mds_shard_entry {
  std::string name = {};         ///< of its file, below the folder of the index
  std::string zipped = {};       ///< of its compressed file; "" if there is none
  std::string compression = {};  ///< how that one is compressed; "" if it is not
  std::uint64_t bytes = 0;       ///< of the file that is not compressed
  std::uint64_t zipped_bytes = 0;
  std::uint64_t samples = 0;
  std::vector<mds_sum> sums = {};         ///< of the file that is not compressed
  std::vector<mds_sum> zipped_sums = {};  ///< of the compressed one
};

/// More columns than any data set has.
inline constexpr std::size_t most_mds_columns = 1000;

/// What an index.json of MDS shards says, version 2. All shards have the same columns.
struct mds_index {
  std::vector<mds_column> columns = {};
  std::vector<mds_shard_entry> shards = {};
};

/// Reads an index.json. Members that are not known are left alone. Single-use.
class mds_index_reader {
 public:
  /// Reads `text`, the content of the file `path`.
  mds_index_reader(std::string_view text, std::string path) : json_(text, std::move(path)) {}

  /// Throws `file_format_error` at the byte from which on it is no such index.
  [[nodiscard]] mds_index read() {
    members({"shards", "version"}, [this](std::string_view key) {
      if (key == "version") {
        require_version();
      } else if (key == "shards") {
        json_.array([this] { read_shard(); });
      } else {
        json_.skip();
      }
    });
    json_.finish();
    return std::move(index_);
  }

 private:
  // Reads an object by `member(key)`. Each of `needed` must be there, and none twice.
  template <class Member>
  void members(std::initializer_list<std::string_view> needed, const Member& member) {
    const std::size_t begin = json_.offset();
    std::uint32_t seen = 0;
    json_.object([&](std::string_view key) {
      std::uint32_t bit = 1;
      for (const std::string_view one : needed) {
        if (one == key && (seen & bit) != 0) {
          json_.refuse("another member than a second \"" + std::string{key} + '"');
        }
        if (one == key) seen |= bit;
        bit <<= 1U;
      }
      member(key);
    });
    std::uint32_t bit = 1;
    for (const std::string_view one : needed) {
      if ((seen & bit) == 0) {
        json_.refuse(begin, "a member \"" + std::string{one} + "\" in this object", "none");
      }
      bit <<= 1U;
    }
  }

  void require_version() {
    const std::size_t at = json_.offset();
    const std::uint64_t version = json_.number();
    if (version != 2) json_.refuse(at, "version 2", std::to_string(version));
  }

  void read_shard() {
    const std::size_t begin = json_.offset();
    mds_shard_entry shard;
    columns_ = {};
    members({"column_encodings", "column_names", "column_sizes", "format", "raw_data", "samples",
             "version"},
            [&](std::string_view key) { read_member(key, shard); });
    const std::vector<mds_column> columns = joined_columns(begin);
    if (index_.shards.empty()) {
      index_.columns = columns;
    } else if (columns != index_.columns) {
      json_.refuse(begin, "a shard of the columns that the first one has", "other ones");
    }
    index_.shards.push_back(std::move(shard));
  }

  void read_member(std::string_view key, mds_shard_entry& shard) {
    if (key == "column_encodings") {
      json_.array([this] { columns_.encodings.push_back(json_.string()); });
    } else if (key == "column_names") {
      json_.array([this] { columns_.names.push_back(json_.string()); });
    } else if (key == "column_sizes") {
      json_.array([this] { columns_.sizes.push_back(json_.null() ? 0 : json_.number()); });
    } else if (key == "compression") {
      if (!json_.null()) shard.compression = json_.string();
    } else if (key == "format") {
      const std::size_t at = json_.offset();
      const std::string format = json_.string();
      if (format != "mds") json_.refuse(at, "\"mds\": the only format read", '\'' + format + '\'');
    } else if (key == "raw_data") {
      read_file(shard.name, shard.bytes, shard.sums);
    } else if (key == "samples") {
      const std::size_t at = json_.offset();
      shard.samples = json_.number();
      if (shard.samples > 0xffff'ffffU) json_.refuse(at, "less than 2^32 samples", "more");
    } else if (key == "version") {
      require_version();
    } else if (key == "zip_data") {
      if (!json_.null()) read_file(shard.zipped, shard.zipped_bytes, shard.zipped_sums);
    } else {
      json_.skip();
    }
  }

  void read_file(std::string& name, std::uint64_t& bytes, std::vector<mds_sum>& sums) {
    members({"basename", "bytes"}, [&](std::string_view key) {
      if (key == "basename") {
        const std::size_t at = json_.offset();
        name = json_.string();
        if (!lies_below(name)) {
          json_.refuse(at, "a name of a file in the folder, or below it", '\'' + name + '\'');
        }
      } else if (key == "bytes") {
        bytes = json_.number();
      } else if (key == "hashes") {
        if (!json_.null()) {
          json_.object([&](std::string_view sum) {
            sums.push_back({std::string{sum}, json_.string()});
          });
        }
      } else {
        json_.skip();
      }
    });
  }

  // Whether a path leads to a file below the folder that it is looked up from.
  [[nodiscard]] static bool lies_below(std::string_view path) noexcept {
    if (path.find('\0') != path.npos) return false;
    while (true) {
      const std::size_t slash = path.find('/');
      const std::string_view part = path.substr(0, slash);
      if (part.empty() || part == "." || part == "..") return false;
      if (slash == path.npos) return true;
      path.remove_prefix(slash + 1);
    }
  }

  // The columns of the shard that starts at `begin`.
  [[nodiscard]] std::vector<mds_column> joined_columns(std::size_t begin) {
    const std::size_t count = columns_.names.size();
    const bool fits = columns_.encodings.size() == count && columns_.sizes.size() == count;
    if (count == 0 || count > most_mds_columns || !fits) {
      json_.refuse(begin, "as many column_encodings and column_sizes as column_names, 1 to 1000",
                   std::to_string(columns_.encodings.size()) + ", " +
                       std::to_string(columns_.sizes.size()) + " and " + std::to_string(count));
    }
    std::vector<mds_column> columns;
    for (std::size_t i = 0; i < count; ++i) {
      mds_column one{std::move(columns_.names[i]), std::move(columns_.encodings[i]),
                     columns_.sizes[i]};
      const mds_encoding encoding = mds_encoding_of(one.encoding);
      if (encoding.is != mds_encoding::kind::unknown && encoding.size != one.size) {
        json_.refuse(begin,
                     "values of " + std::to_string(encoding.size) + " bytes (0: any) in column '" +
                         one.name + "', which is " + one.encoding,
                     std::to_string(one.size));
      }
      for (const mds_column& other : columns) {
        if (other.name == one.name) json_.refuse(begin, "each column once", one.name + " twice");
      }
      columns.push_back(std::move(one));
    }
    return columns;
  }

  struct column_lists {
    std::vector<std::string> names;
    std::vector<std::string> encodings;
    std::vector<std::uint64_t> sizes;
  };

  json_reader json_;
  mds_index index_;
  column_lists columns_;  // of the shard that is read
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
