// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A column of MDS shards: one value of each sample.
struct mds_column {
  /// Its name.
  std::string name = {};
  /// How a value becomes bytes: "bytes", "str", "jpeg", "png", "int", "uint8" to "float64",
  /// "str_int", "ndarray:float32:3,4" and the like, as Mosaic's MDSWriter has them.
  std::string encoding = {};
  /// The bytes of each value; 0 where they differ from sample to sample.
  std::uint64_t size = 0;

  friend bool operator==(const mds_column&, const mds_column&) = default;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
