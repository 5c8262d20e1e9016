// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/blob/mds/mds_compression.hpp>

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

}  // namespace PENSTOCK_ABI
}  // namespace penstock
