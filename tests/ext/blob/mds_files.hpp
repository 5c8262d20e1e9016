// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace test {

/// So many bytes of a number, the lowest first.
inline std::string mds_little(std::uint64_t value, std::size_t width = 4) {
  std::string bytes;
  for (std::size_t i = 0; i < width; ++i, value >>= 8U) bytes += static_cast<char>(value & 0xffU);
  return bytes;
}

/// A shard of these samples.
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

/// A shard as index.json has it.
struct mds_entry {
  std::string name = "shard.00000.mds";
  std::uint64_t bytes = 0;
  std::uint64_t samples = 0;
  std::string encodings = "\"bytes\", \"int\"";
  std::string names = "\"blob\", \"label\"";
  std::string sizes = "null, 8";
  std::string format = "mds";
  std::string zipped = "null";

  [[nodiscard]] std::string text() const {
    return "{\"column_encodings\": [" + encodings + "], \"column_names\": [" + names +
           "], \"column_sizes\": [" + sizes +
           "], \"compression\": " + (zipped == "null" ? "null" : "\"zstd:7\"") +
           ", \"format\": \"" + format + "\", \"hashes\": [], \"raw_data\": {\"basename\": \"" +
           name + "\", \"bytes\": " + std::to_string(bytes) +
           ", \"hashes\": {}}, \"samples\": " + std::to_string(samples) +
           ", \"size_limit\": 67108864, \"version\": 2, \"zip_data\": " + zipped + "}";
  }
};

/// An index.json of these shards.
inline std::string mds_index(const std::vector<mds_entry>& shards) {
  std::string text;
  for (const mds_entry& one : shards) text += (text.empty() ? "" : ", ") + one.text();
  return "{\"shards\": [" + text + "], \"version\": 2}";
}

/// A sample of a blob and a label, as `mds_entry` has its columns.
inline std::string mds_sample(std::string_view blob, std::int64_t label) {
  return mds_little(blob.size()) + std::string{blob} +
         mds_little(static_cast<std::uint64_t>(label), 8);
}

}  // namespace test
