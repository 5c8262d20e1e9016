// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/mds/mds_column.hpp>
#include <penstock_ext/blob/mds/mds_compression.hpp>
#include <penstock_ext/blob/mds/mds_writer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// As what the blobs of a source are written.
struct pack_mds_options {
  /// The name of the column of the blobs.
  std::string blob = "blob";
  /// The encoding of that column: "jpeg" where all of them are JPEG pictures, and so on.
  std::string encoding = "bytes";
  /// The column of the labels, "int"; "" for none.
  std::string label = "label";
  /// The column of the keys, "str"; "" for none.
  std::string key = {};
  /// The most bytes of a shard, before it is compressed.
  std::uint64_t shard_bytes = std::uint64_t{1} << 26;
  /// How shards are compressed: `zstd{3}` of `penstock_ext/files/zstd/zstd.hpp`; by default not at all.
  mds_compression compression = {};
  /// The sums that index.json has of each file: "xxh64", "sha1", "sha256".
  std::vector<std::string> hashes = {};
};

/// Writes all blobs of `source`, in their order, as MDS shards into `folder`, and returns how many
/// there are:
///
///     pack_mds(image_folder{"photos"}, "photos.mds", {.blob = "image", .encoding = "jpeg"});
///
/// Throws what `mds_writer` throws, and what the source throws; index.json is not there then, so
/// that nothing takes the shards for all of them.
template <blob_source Source>
std::uint64_t pack_mds(const Source& source, const std::string& folder,
                       const pack_mds_options& options = {}) {
  std::vector<mds_column> columns{{options.blob, options.encoding}};
  if (!options.label.empty()) columns.push_back({options.label, "int"});
  if (!options.key.empty()) columns.push_back({options.key, "str"});
  mds_writer out{folder,
                 columns,
                 {.shard_bytes = options.shard_bytes,
                  .compression = options.compression,
                  .hashes = options.hashes}};
  const std::uint64_t count = source.size();
  blob_buffer buffer;
  std::vector<std::span<const std::byte>> values;
  for (std::uint64_t index = 0; index < count; ++index) {
    values.assign(1, source.bytes(index, buffer));
    std::array<std::byte, 8> number{};
    if (!options.label.empty()) {
      const auto label = static_cast<std::uint64_t>(source.label(index));
      for (unsigned i = 0; i < 8; ++i) number[i] = static_cast<std::byte>(label >> 8U * i & 0xffU);
      values.push_back(number);
    }
    const std::string key = options.key.empty() ? std::string{} : source.key(index);
    if (!options.key.empty()) values.push_back(std::as_bytes(std::span{key}));
    out.add(values);
  }
  out.finish();
  return count;
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
