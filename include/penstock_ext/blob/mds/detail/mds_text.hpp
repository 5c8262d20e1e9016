// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock_ext/blob/mds/detail/mds_index.hpp>
#include <penstock_ext/blob/mds/detail/mds_sum.hpp>
#include <penstock_ext/blob/mds/mds_column.hpp>
#include <penstock_ext/blob/mds/mds_writer_options.hpp>

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
}  // namespace PENSTOCK_ABI
}  // namespace penstock
