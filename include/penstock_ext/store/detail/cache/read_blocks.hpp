// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/cached_store_options.hpp>
#include <penstock_ext/store/detail/cache/block_piece.hpp>
#include <penstock_ext/store/detail/cache/disk/block_disk.hpp>
#include <penstock_ext/store/detail/cache/disk/block_file.hpp>
#include <penstock_ext/store/detail/cache/disk/block_folder.hpp>
#include <penstock_ext/store/detail/cache/known_objects.hpp>
#include <penstock_ext/store/detail/require_inside.hpp>
#include <penstock_ext/store/support/store_ref.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The number of block `id`, which all versions of its object share: the newer one takes the older
/// one's place, and what will be used is known by it before the version is.
[[nodiscard]] inline std::uint64_t number_of(block_id id, const cached_store_options& options) {
  id.store = options.store_name;
  return block_number(id);
}

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
    const block_id id{from.store, from.name, from.size, options.block_bytes, block};
    take(block_piece{.id = id,
                     .key = {from.number, block},
                     .number = number_of(id, options),
                     .skipped = static_cast<std::size_t>(skipped),
                     .out = left.first(count)});
    left = left.subspan(count);
    at += count;
  }
}

/// Calls `read(pieces)` for the parts of all `ranges`, so many at a time that their blocks take 16
/// MiB, or are one. `object(name)` is a `known_object`. Throws `file_truncated` for a range that
/// reaches beyond the end of one.
template <class Object, class Read>
void each_group(std::span<const byte_range> ranges, const cached_store_options& options,
                const Object& object, const Read& read) {
  constexpr std::uint64_t most = std::uint64_t{16} << 20;
  std::vector<block_piece> pieces;
  std::uint64_t bytes = 0;
  for (const byte_range& range : ranges) {
    const known_object& from = object(range.object);
    require_inside(range, from.size, [&] { return from.name; });
    each_piece(range, from, options, [&](const block_piece& one) {
      const bool is_next = pieces.empty() || pieces.back().key != one.key;
      if (is_next && bytes > 0 && bytes + one.id.length() > most) {
        read(std::span{pieces});
        pieces.clear();
        bytes = 0;
      }
      pieces.push_back(one);
      bytes += is_next ? one.id.length() : 0;
    });
  }
  read(std::span{pieces});
}

/// `range` as a part of one block of an object that was asked for; nothing where it is more than
/// that, empty, or reaches beyond the end.
[[nodiscard]] inline std::optional<block_piece> only_piece(const upcoming_range& range,
                                                           known_objects& objects,
                                                           const cached_store_options& options) {
  const known_object* const from = objects.find_known(range.object);
  if (from == nullptr || range.length == 0 || range.offset >= from->size) return std::nullopt;
  const std::uint64_t block = range.offset / options.block_bytes;
  const std::uint64_t skipped = range.offset % options.block_bytes;
  const block_id id{from->store, from->name, from->size, options.block_bytes, block};
  if (range.length > id.length() - skipped) return std::nullopt;
  return block_piece{.id = id,
                     .key = {from->number, block},
                     .number = number_of(id, options),
                     .skipped = static_cast<std::size_t>(skipped),
                     .out = {}};
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

/// Writes what `claims` have read to `disk`, which some of it came from. Whether it is time to look
/// what lies there.
[[nodiscard]] inline bool write_blocks(block_disk& disk, std::span<const block_claim> claims) {
  bool looks = false;
  for (const block_claim& one : claims) {
    const block_piece& of = *one.of;
    if (one.is_from_disk) {
      disk.is_there(of.number, of.id, one.next_use);
    } else if (one.may_be_written) {
      looks = disk.write(of.number, of.id, one.bytes->all(), one.next_use) || looks;
    }
  }
  return looks;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
