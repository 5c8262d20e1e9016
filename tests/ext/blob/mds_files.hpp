// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/blob/mds/mds_shards.hpp>

#include "ext/blob/folders.hpp"
#include "support/catch.hpp"

namespace test {

/// Returns a number in `width` little-endian bytes.
inline std::string mds_little(std::uint64_t value, std::size_t width = 4) {
  std::string bytes;
  for (std::size_t i = 0; i < width; ++i, value >>= 8U) bytes += static_cast<char>(value & 0xffU);
  return bytes;
}

/// Returns the bytes of a shard with these samples.
inline std::string mds_shard(const std::vector<std::string>& samples,
                             std::string_view config = "{}") {
  std::string bytes = mds_little(samples.size());
  std::uint64_t end = 4 * (samples.size() + 2) + config.size();
  bytes += mds_little(end);
  for (const std::string& one : samples) bytes += mds_little(end += one.size());
  bytes.append(config);
  for (const std::string& one : samples) bytes += one;
  return bytes;
}

/// The entry of a shard in an index.json.
struct mds_entry {
  std::string name = "shard.00000.mds";
  std::uint64_t bytes = 0;
  std::uint64_t samples = 0;
  std::string encodings = "\"bytes\", \"int\"";
  std::string names = "\"blob\", \"label\"";
  std::string sizes = "null, 8";
  std::string format = "mds";
  std::string zipped = "null";
  std::string compression = "\"zstd:7\"";  // used if `zipped` is not null
  std::string checksums = "{}";

  [[nodiscard]] std::string text() const {
    return "{\"column_encodings\": [" + encodings + "], \"column_names\": [" + names +
           "], \"column_sizes\": [" + sizes +
           "], \"compression\": " + (zipped == "null" ? "null" : compression) + ", \"format\": \"" +
           format + "\", \"hashes\": [], \"raw_data\": {\"basename\": \"" + name +
           "\", \"bytes\": " + std::to_string(bytes) + ", \"hashes\": " + checksums +
           "}, \"samples\": " + std::to_string(samples) +
           ", \"size_limit\": 67108864, \"version\": 2, \"zip_data\": " + zipped + "}";
  }
};

/// Returns the text of an index.json with these shards.
inline std::string mds_index(const std::vector<mds_entry>& shards) {
  std::string text;
  for (const mds_entry& one : shards) text += (text.empty() ? "" : ", ") + one.text();
  return "{\"shards\": [" + text + "], \"version\": 2}";
}

/// Returns a sample with a blob and a label in the columns of `mds_entry`.
inline std::string mds_sample(std::string_view blob, std::int64_t label) {
  return mds_little(blob.size()) + std::string{blob} +
         mds_little(static_cast<std::uint64_t>(label), 8);
}

/// Returns the checksums of `bytes`, formatted as in index.json.
inline std::string mds_checksum(std::string_view bytes, const std::vector<std::string>& hashes) {
  std::string text;
  for (const std::string& name : hashes) {
    penstock::detail::mds_hasher sum = *penstock::detail::mds_hasher::of(name);
    sum.add(std::as_bytes(std::span{bytes}));
    text += (text.empty() ? "\"" : ", \"") + name + "\": \"" + sum.digits() + '"';
  }
  return '{' + text + '}';
}

/// Options of `write_mds`: samples per shard, checksums, and a codec if `packed` is not empty.
struct mds_writing {
  std::size_t per_shard = 100;
  std::vector<std::string> hashes = {};
  std::string compression = {};
  std::function<std::string(const std::string&)> packed = {};
};

/// Writes a folder of shards with an index.json. The samples must have the columns of `entry`.
inline void write_mds(const folder& dir, const std::vector<std::string>& samples,
                      const mds_writing& how, const mds_entry& entry = {}) {
  std::vector<mds_entry> shards;
  for (std::size_t at = 0; at < samples.size(); at += how.per_shard) {
    const std::size_t end = (std::min)(at + how.per_shard, samples.size());
    std::string bytes = mds_shard({samples.begin() + static_cast<std::ptrdiff_t>(at),
                                   samples.begin() + static_cast<std::ptrdiff_t>(end)});
    mds_entry& one = shards.emplace_back(entry);
    one.name[10] = static_cast<char>('0' + at / how.per_shard);
    one.bytes = bytes.size();
    one.samples = end - at;
    one.checksums = mds_checksum(bytes, how.hashes);
    std::string name = one.name;
    if (how.packed) {
      bytes = how.packed(bytes);
      name += ".zstd";
      one.compression = '"' + how.compression + '"';
      one.zipped = R"({"basename": ")" + name + R"(", "bytes": )" + std::to_string(bytes.size()) +
                   R"(, "hashes": )" + mds_checksum(bytes, how.hashes) + '}';
    }
    dir.add(name, bytes);
  }
  dir.add("index.json", mds_index(shards));
}

/// Lists the shards of the folder $PENSTOCK_MDS in a file next to it. Each line describes a sample:
/// its index, blob size, label, and columns as hexadecimal digits.
inline void list_mds(const penstock::mds_compression& compression) {
  const char* const variable = std::getenv("PENSTOCK_MDS");
  REQUIRE(variable != nullptr);
  const std::string dir = variable;
  const penstock::mds_shards shards{dir,
                                    {.blob = "text",
                                     .label = "int",
                                     .compression = compression,
                                     .unpacked = dir + "-unpacked",
                                     .verify = true}};
  std::ofstream list{dir + ".list"};
  penstock::blob_buffer buffer;
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    list << i << ' ' << shards.bytes(i, buffer).size() << ' ' << shards.label(i);
    for (const penstock::mds_column& column : shards.columns()) {
      list << ' ';
      for (const std::byte byte : shards.column(i, column.name, buffer)) {
        list << "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4U]
             << "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15U];
      }
    }
    list << '\n';
  }
}

}  // namespace test
