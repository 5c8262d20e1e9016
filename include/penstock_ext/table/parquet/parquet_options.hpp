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
  /// Whether the pages of a row group are compared with their sums (CRC-32) each time it is decoded:
  /// `file_corrupt` for a damaged one. Off by default, because columns that are not compressed then
  /// take about twice as long. A page without a sum is not checked: pyarrow writes sums only with
  /// `write_page_checksum=True`.
  bool verify = false;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
