// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// 64 bits that tell damaged bytes from whole ones: XXH3 with the seed 0.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  return ::XXH3_64bits(bytes.data(), bytes.size());
}

/// Which block of which object of which store, and of how long a one.
struct block_id {
  std::string_view store;  ///< what the cache was told that the store is
  std::string_view object;
  std::uint64_t object_size = 0;
  std::uint64_t block_size = 0;  ///< of all blocks but an object's last
  std::uint64_t number = 0;      ///< from 0, within the object

  /// How many bytes the block has.
  [[nodiscard]] std::uint64_t length() const noexcept {
    const std::uint64_t begin = number * block_size;
    return (std::min)(block_size, object_size - begin);
  }
};

/// The bytes of a block that have a sum of their own, so that a part of the block can be read and
/// checked by itself.
inline constexpr std::uint64_t chunk_bytes = std::uint64_t{16} << 10;

/// The start of a block's file; its store's and its object's name come after it, the sums of its
/// chunks, then its bytes. In the byte order of the machine: files of another one have another
/// `magic`.
struct block_header {
  static constexpr std::uint64_t expected_magic = 0x34'4b'4c'42'4b'54'53'50U;  // "PSTKBLK4"

  std::uint64_t magic = expected_magic;
  std::uint64_t header_sum = 0;  ///< of what comes after it, up to the bytes of the block
  std::uint64_t chunk_size = chunk_bytes;
  std::uint64_t object_size = 0;
  std::uint64_t block_size = 0;
  std::uint64_t number = 0;
  std::uint64_t store_length = 0;   ///< of the store's name
  std::uint64_t object_length = 0;  ///< of the object's name
};
static_assert(sizeof(block_header) == 64, "written as it is");
inline constexpr std::size_t summed_header = offsetof(block_header, chunk_size);

/// How many chunks block `id` has; the last one may be shorter.
[[nodiscard]] inline std::uint64_t chunks_of(const block_id& id) noexcept {
  return (id.length() + chunk_bytes - 1) / chunk_bytes;
}
/// How many bytes stand before those of block `id` in its file.
[[nodiscard]] inline std::size_t start_bytes(const block_id& id) noexcept {
  return sizeof(block_header) + id.store.size() + id.object.size() +
         static_cast<std::size_t>(chunks_of(id) * sizeof(std::uint64_t));
}

/// What stands before the bytes of block `id` in its file.
[[nodiscard]] inline std::vector<std::byte> block_start(const block_id& id,
                                                        std::span<const std::byte> bytes) {
  block_header header;
  header.object_size = id.object_size;
  header.block_size = id.block_size;
  header.number = id.number;
  header.store_length = id.store.size();
  header.object_length = id.object.size();
  std::vector<std::byte> start(start_bytes(id));
  std::size_t at = sizeof header;
  const auto append = [&](std::span<const std::byte> more) {
    if (!more.empty()) std::memcpy(start.data() + at, more.data(), more.size());
    at += more.size();
  };
  append(std::as_bytes(std::span{id.store}));
  append(std::as_bytes(std::span{id.object}));
  while (!bytes.empty()) {
    const auto chunk = bytes.first((std::min)(bytes.size(), std::size_t{chunk_bytes}));
    const std::uint64_t sum = checksum(chunk);
    append(std::as_bytes(std::span{&sum, 1}));
    bytes = bytes.subspan(chunk.size());
  }
  std::memcpy(start.data(), &header, sizeof header);
  header.header_sum = checksum(std::span{start}.subspan(summed_header));
  std::memcpy(start.data(), &header, sizeof header);
  return start;
}

/// Whether `start` is that of block `id`'s file, undamaged.
[[nodiscard]] inline bool is_start_of(const block_id& id, std::span<const std::byte> start) {
  block_header header;
  if (start.size() < sizeof header) return false;
  std::memcpy(&header, start.data(), sizeof header);
  const std::string_view names{reinterpret_cast<const char*>(start.data()) + sizeof header,
                               start.size() - sizeof header};
  return header.magic == block_header::expected_magic &&
         header.header_sum == checksum(start.subspan(summed_header)) &&
         header.chunk_size == chunk_bytes && header.object_size == id.object_size &&
         header.block_size == id.block_size && header.number == id.number &&
         header.store_length == id.store.size() && header.object_length == id.object.size() &&
         start.size() == start_bytes(id) && names.substr(0, id.store.size()) == id.store &&
         names.substr(id.store.size(), id.object.size()) == id.object;
}

/// Whether `bytes`, chunks of block `id` from number `first` on, have their sums in `start`, which
/// is that of its file. The last one is as long as the block has it.
[[nodiscard]] inline bool are_whole(const block_id& id, std::span<const std::byte> start,
                                    std::uint64_t first, std::span<const std::byte> bytes) {
  const auto sums = start.last(static_cast<std::size_t>(chunks_of(id) * sizeof(std::uint64_t)));
  for (std::uint64_t chunk = first; !bytes.empty(); ++chunk) {
    const auto size =
        static_cast<std::size_t>((std::min)(chunk_bytes, std::uint64_t{bytes.size()}));
    std::uint64_t sum = 0;
    std::memcpy(&sum, sums.data() + chunk * sizeof sum, sizeof sum);
    if (checksum(bytes.first(size)) != sum) return false;
    bytes = bytes.subspan(size);
  }
  return true;
}

/// A number for block `id`: its file's name in hexadecimal digits. Two blocks may have one, which
/// the names in the file tell apart.
[[nodiscard]] inline std::uint64_t block_number(const block_id& id) {
  std::array<std::uint64_t, 5> parts{checksum(std::as_bytes(std::span{id.store})),
                                     checksum(std::as_bytes(std::span{id.object})), id.block_size,
                                     id.number, block_header::expected_magic};
  return checksum(std::as_bytes(std::span{parts}));
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
