// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <penstock/store/byte_store.hpp>
#include <penstock/store/cached_store_options.hpp>
#include <penstock/store/detail/cache/block_disk.hpp>
#include <penstock/store/detail/cache/block_file.hpp>
#include <penstock/store/detail/cache/block_folder.hpp>
#include <penstock/store/detail/cache/block_piece.hpp>
#include <penstock/store/detail/cache/known_objects.hpp>
#include <penstock/store/detail/store_ref.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Calls `take(piece)` for the parts of `range`, of the object `from`, that lie in one block each.
template <class Take>
void each_piece(const byte_range& range, const known_object& from,
                const cached_store_options& options, const Take& take) {
  std::span<std::byte> left = range.out;
  for (std::uint64_t at = range.offset; !left.empty();) {
    const std::uint64_t block = at / options.block_bytes;
    const std::uint64_t skipped = at % options.block_bytes;
    const auto count = static_cast<std::size_t>(
        (std::min)(std::uint64_t{left.size()}, options.block_bytes - skipped));
    const block_id id{options.store_name, from.name, from.size, options.block_bytes, block};
    take(block_piece{.id = id,
                     .key = {from.number, block},
                     .number = block_number(id),
                     .skipped = static_cast<std::size_t>(skipped),
                     .out = left.first(count)});
    left = left.subspan(count);
    at += count;
  }
}

/// Reads the parts that are wanted by themselves from `disk`. How many were there. Two threads may
/// read one: that is no more than a copy of what the system has in memory.
inline std::uint64_t read_alone(block_disk& disk, std::span<block_piece> pieces) {
  std::uint64_t found = 0;
  for (block_piece& one : pieces) {
    if (!one.is_alone || one.tried) continue;
    one.tried = disk.read(one.number, one.id, one.skipped, one.out);
    found += is_read_alone(one) ? 1U : 0U;
  }
  return found;
}

/// Reads the blocks of `claims`: from `disk` those that are whole there, and from `store` the rest
/// at once. Throws what the store throws.
template <byte_store Store>
void read_blocks(const Store& store, block_disk& disk, std::span<block_claim> claims) {
  std::vector<byte_range> ranges;
  for (block_claim& one : claims) {
    const block_id& id = one.of->id;
    one.bytes = std::make_shared<block_bytes>(static_cast<std::size_t>(id.length()));
    const auto found =
        one.of->tried ? *one.of->tried : disk.read(one.of->number, id, 0, one.bytes->all());
    one.is_from_disk = found == block_folder::found::whole;
    one.may_be_written = found != block_folder::found::unreadable;
    if (one.is_from_disk) continue;
    ranges.push_back({id.object, id.number * id.block_size, one.bytes->all()});
  }
  if (!ranges.empty()) read_ranges(store, std::span<const byte_range>{ranges});
}

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
