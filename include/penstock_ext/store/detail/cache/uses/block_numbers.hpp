// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/cached_store_options.hpp>
#include <penstock_ext/store/detail/cache/disk/block_file.hpp>
#include <penstock_ext/store/detail/cache/known_objects.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The blocks that `ranges` need, in order, by their numbers; none lies beyond the end of an object
/// whose size is known. `ask(object)` is the size of one that is not known, asked where the list
/// would be long without it; where that is `std::nullopt`, a range that long counts as its first
/// block.
template <class Ask>
[[nodiscard]] std::vector<std::uint64_t> block_numbers(std::span<const upcoming_range> ranges,
                                                       const cached_store_options& options,
                                                       known_objects& objects, const Ask& ask) {
  constexpr std::uint64_t most_unasked = 4096;  // blocks
  const std::uint64_t block_size = options.block_bytes;
  const auto size_of = [&](const upcoming_range& range) {
    if (const known_object* const known = objects.find_known(range.object)) return known->size;
    if ((range.length - 1) / block_size < most_unasked) return std::uint64_t{0} - 1;
    const std::optional<std::uint64_t> size = ask(range.object);
    return size ? *size : range.offset + 1;
  };
  std::vector<std::uint64_t> numbers;
  for (const upcoming_range& range : ranges) {
    if (range.length == 0) continue;
    const std::uint64_t size = size_of(range);
    if (range.offset >= size) continue;
    const std::uint64_t count = (std::min)(range.length, size - range.offset);  // > 0
    const std::uint64_t last = (range.offset + (count - 1)) / block_size;
    for (std::uint64_t block = range.offset / block_size; block <= last; ++block) {
      numbers.push_back(block_number({options.store_name, range.object, 0, block_size, block}));
    }
  }
  return numbers;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
