// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <penstock_ext/blob/mds/mds_column.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/little_endian.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Where bytes lie in a file.
struct mds_place {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

/// How many bytes of sizes a sample starts with: 4 for each column whose values differ in size.
[[nodiscard]] inline std::uint64_t mds_head_bytes(std::span<const mds_column> columns) noexcept {
  return 4 *
         static_cast<std::uint64_t>(std::count_if(
             columns.begin(), columns.end(), [](const mds_column& one) { return one.size == 0; }));
}

/// Where the value of column `which` lies in a sample of `size` bytes that starts with `head`, its
/// `mds_head_bytes`. A sample is
///
///     u32 sizes of the columns whose values differ in size; the values, column by column
///
/// `begin` and `path` are the sample's place and file, for messages. Throws `file_corrupt` unless
/// the columns fill the sample.
[[nodiscard]] inline mds_place mds_value(std::span<const mds_column> columns, std::size_t which,
                                         std::span<const std::byte> head, std::uint64_t size,
                                         std::uint64_t begin, const std::string& path) {
  mds_place found;
  std::uint64_t end = head.size();
  std::size_t next = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::uint64_t bytes = columns[i].size;
    if (bytes == 0) {
      bytes = little_endian<4>(head.data() + next);
      next += 4;
    }
    if (bytes > size || end > size - bytes) {
      throw file_corrupt(path, begin, "a sample of " + std::to_string(size) + " bytes",
                         "column '" + columns[i].name + "', which goes from byte " +
                             std::to_string(end) + " to " + std::to_string(end + bytes) + " of it");
    }
    if (i == which) found = {end, bytes};
    end += bytes;
  }
  if (end != size) {
    throw file_corrupt(path, begin, "columns of " + std::to_string(size) + " bytes, as the sample",
                       std::to_string(end));
  }
  return found;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
