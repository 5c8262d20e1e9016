// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock_ext/table/table_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How Parquet files are read.
struct parquet_options {
  /// How columns become fields.
  table_options table = {};
  /// The most bytes of decoded row groups that are held, at least those of the largest one. What is
  /// being decoded takes its compressed pages besides.
  std::uint64_t cache_bytes = std::uint64_t{1} << 28;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
