// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
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
#include <penstock/store/detail/cache/block_folder.hpp>
#include <penstock/store/detail/cache/block_piece.hpp>
#include <penstock/store/detail/store_ref.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Reads the blocks of `claims`: from `disk` those that are whole there, and from `store` the rest
/// at once. Throws what the store throws.
template <byte_store Store>
void read_blocks(const Store& store, block_disk& disk, std::span<block_claim> claims) {
  std::vector<byte_range> ranges;
  for (block_claim& one : claims) {
    const block_id& id = one.of->id;
    one.bytes = std::make_shared<block_bytes>(static_cast<std::size_t>(id.length()));
    const auto found = disk.read(one.of->number, id, one.bytes->all());
    one.is_from_disk = found == block_folder::found::whole;
    one.may_be_written = found != block_folder::found::unreadable;
    if (one.is_from_disk) continue;
    ranges.push_back({id.object, id.number * id.block_size, one.bytes->all()});
  }
  if (!ranges.empty()) read_ranges(store, std::span<const byte_range>{ranges});
}

/// The blocks that `ranges` need, in order, by their numbers; `size_of(object, blocks)` is the size
/// of an object of which a range names so many blocks, or more: none of a range lies beyond it.
template <class SizeOf>
[[nodiscard]] std::vector<std::uint64_t> block_numbers(std::span<const upcoming_range> ranges,
                                                       std::string_view store,
                                                       std::uint64_t block_size,
                                                       const SizeOf& size_of) {
  std::vector<std::uint64_t> numbers;
  for (const upcoming_range& range : ranges) {
    if (range.length == 0) continue;
    const std::uint64_t size = size_of(range.object, (range.length - 1) / block_size + 1);
    if (range.offset >= size) continue;
    const std::uint64_t count = (std::min)(range.length, size - range.offset);  // > 0
    const std::uint64_t last = (range.offset + (count - 1)) / block_size;
    for (std::uint64_t block = range.offset / block_size; block <= last; ++block) {
      numbers.push_back(block_number({store, range.object, 0, block_size, block}));
    }
  }
  return numbers;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
