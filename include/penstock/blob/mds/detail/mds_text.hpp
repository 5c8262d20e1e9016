// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <penstock/blob/mds/detail/mds_index.hpp>
#include <penstock/blob/mds/mds_column.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
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

/// An array of JSON out of `text_of(column)` of each column.
template <class TextOf>
[[nodiscard]] std::string json_list(std::span<const mds_column> columns, const TextOf& text_of) {
  std::string list;
  for (const mds_column& one : columns) list += (list.empty() ? "" : ", ") + text_of(one);
  return '[' + list + ']';
}

/// What a shard says of its columns, in two halves: an index has more members between them. The
/// bytes are those that Python's json.dumps(sort_keys=True) makes.
struct mds_config_text {
  std::string columns;  ///< up to "hashes"
  std::string limit;    ///< "size_limit"
  std::string version;  ///< "version"

  /// Of shards of these columns and of at most `shard_bytes`.
  mds_config_text(std::span<const mds_column> of, std::uint64_t shard_bytes)
      : columns("{\"column_encodings\": " +
                json_list(of, [](const mds_column& one) { return json_string(one.encoding); }) +
                ", \"column_names\": " +
                json_list(of, [](const mds_column& one) { return json_string(one.name); }) +
                ", \"column_sizes\": " +
                json_list(of,
                          [](const mds_column& one) {
                            return one.size == 0 ? std::string{"null"} : std::to_string(one.size);
                          }) +
                ", \"compression\": null, \"format\": \"mds\", \"hashes\": []"),
        limit(", \"size_limit\": " + std::to_string(shard_bytes)),
        version(", \"version\": 2") {}

  /// What a shard has between its offsets and its samples.
  [[nodiscard]] std::string in_shard() const { return columns + limit + version + '}'; }

  /// What an index has of a shard.
  [[nodiscard]] std::string in_index(const mds_shard_entry& shard) const {
    return columns + ", \"raw_data\": {\"basename\": " + json_string(shard.name) +
           ", \"bytes\": " + std::to_string(shard.bytes) +
           ", \"hashes\": {}}, \"samples\": " + std::to_string(shard.samples) + limit + version +
           ", \"zip_data\": null}";
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
