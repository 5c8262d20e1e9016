// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <penstock/store/byte_store.hpp>
#include <penstock/store/cached_store_options.hpp>
#include <penstock/store/detail/cache/block_disk.hpp>
#include <penstock/store/detail/cache/block_file.hpp>
#include <penstock/store/detail/cache/block_piece.hpp>
#include <penstock/store/detail/store_ref.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Reads the blocks of `claims`: from `disk` those that are whole there, and from `store` the rest at
/// once. Throws what the store throws.
template <byte_store Store>
void read_blocks(const Store& store, block_disk& disk, std::span<block_claim> claims) {
  std::vector<byte_range> ranges;
  for (block_claim& one : claims) {
    const block_id& id = one.of->id;
    one.bytes = std::make_shared<block_bytes>(static_cast<std::size_t>(id.length()));
    one.is_from_disk = disk.read(one.of->number, id, one.bytes->all());
    if (one.is_from_disk) continue;
    ranges.push_back({id.object, id.number * id.block_size, one.bytes->all()});
  }
  if (!ranges.empty()) read_ranges(store, std::span<const byte_range>{ranges});
}

/// The blocks that `ranges` need, in order, by their numbers.
[[nodiscard]] inline std::vector<std::uint64_t> block_numbers(
    std::span<const upcoming_range> ranges, std::string_view store, std::uint64_t block_size) {
  std::vector<std::uint64_t> numbers;
  for (const upcoming_range& range : ranges) {
    if (range.length == 0) continue;
    const std::uint64_t last = (range.offset + (range.length - 1)) / block_size;
    for (std::uint64_t block = range.offset / block_size; block <= last; ++block) {
      numbers.push_back(block_number({store, range.object, 0, block_size, block}));
    }
  }
  return numbers;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
