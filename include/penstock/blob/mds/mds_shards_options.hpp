// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/version.hpp>

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
  /// How many shards stay open. Those after them are opened for each read, and checked.
  std::size_t most_open = 512;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
