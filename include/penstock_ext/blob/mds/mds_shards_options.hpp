// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock_ext/blob/mds/mds_compression.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What of the samples of MDS shards is read, and how.
struct mds_shards_options {
  /// The column that is a sample's blob; "" is the only one whose values differ in size.
  std::string blob = {};
  /// The column that has the label, a whole number; "" for labels that are all 0.
  std::string label = {};
  /// The largest sample that is read, all columns together, in bytes: `file_format_error` for a
  /// larger one, before memory is taken.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  /// By what compressed shards are unpacked at the construction: `zstd{}` of
  /// `penstock_ext/files/zstd/zstd.hpp`. Without one they are refused, unless they lie unpacked beside.
  mds_compression compression = {};
  /// The folder that gets the unpacked shards, and is made where it is missing; nothing is written
  /// elsewhere. What is in it is used again, by this process and others.
  std::string unpacked = {};
  /// The most bytes of unpacked shards in that folder: `option_error` for more, before one is
  /// written.
  std::uint64_t most_unpacked = std::uint64_t{1} << 40;
  /// Whether the construction reads all shards and compares them with their sums in index.json, by
  /// xxh64, sha1 or sha256.
  bool verify = false;
  /// How many threads unpack, verify and open shards at the construction. None is left when it
  /// returns.
  std::size_t threads = 8;
  /// How many shards stay open. Those after them are opened for each read, and checked.
  std::size_t most_open = 512;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
