// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/byte_store.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws `file_truncated` for a range that reaches beyond the `size` bytes of its object, whose
/// path is `path()`.
template <class Path>
void require_inside(const byte_range& range, std::uint64_t size, const Path& path) {
  if (range.offset <= size && range.out.size() <= size - range.offset) return;
  throw file_truncated(path(), range.offset,
                       std::to_string(range.out.size()) + " bytes from there on",
                       "an object of " + std::to_string(size) + " bytes");
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
