// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock/files/detail/checksum.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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

/// The start of a block's file; its store's and its object's name come after it, then its bytes.
/// In the byte order of the machine: files of another one have another `magic`.
struct block_header {
  static constexpr std::uint64_t expected_magic = 0x31'4b'4c'42'4b'54'53'50U;  // "PSTKBLK1"

  std::uint64_t magic = expected_magic;
  std::uint64_t header_sum = 0;  ///< of what comes after it, up to the bytes of the block
  std::uint64_t bytes_sum = 0;   ///< of the bytes of the block
  std::uint64_t object_size = 0;
  std::uint64_t block_size = 0;
  std::uint64_t number = 0;
  std::uint64_t store_length = 0;   ///< of the store's name
  std::uint64_t object_length = 0;  ///< of the object's name
};
static_assert(sizeof(block_header) == 64, "written as it is");

/// What stands before the bytes of block `id` in its file.
[[nodiscard]] inline std::vector<std::byte> block_start(const block_id& id,
                                                        std::span<const std::byte> bytes) {
  block_header header;
  header.bytes_sum = checksum(bytes);
  header.object_size = id.object_size;
  header.block_size = id.block_size;
  header.number = id.number;
  header.store_length = id.store.size();
  header.object_length = id.object.size();
  std::vector<std::byte> start(sizeof header + id.store.size() + id.object.size());
  std::memcpy(start.data(), &header, sizeof header);
  std::byte* const names = start.data() + sizeof header;
  if (!id.store.empty()) std::memcpy(names, id.store.data(), id.store.size());
  if (!id.object.empty()) std::memcpy(names + id.store.size(), id.object.data(), id.object.size());
  constexpr std::size_t summed = offsetof(block_header, bytes_sum);
  header.header_sum = checksum(std::span{start}.subspan(summed));
  std::memcpy(start.data() + offsetof(block_header, header_sum), &header.header_sum,
              sizeof header.header_sum);
  return start;
}

/// What is wrong with `start` and `bytes` as the file of block `id`; "" if nothing is.
[[nodiscard]] inline std::string block_problem(const block_id& id, std::span<const std::byte> start,
                                               std::span<const std::byte> bytes) {
  block_header header;
  if (start.size() < sizeof header) return "it is shorter than a header";
  std::memcpy(&header, start.data(), sizeof header);
  if (header.magic != block_header::expected_magic) return "it is no block of a cache";
  constexpr std::size_t summed = offsetof(block_header, bytes_sum);
  if (checksum(start.subspan(summed)) != header.header_sum) return "its header is damaged";
  const std::string_view names{reinterpret_cast<const char*>(start.data()) + sizeof header,
                               start.size() - sizeof header};
  const bool is_it = header.object_size == id.object_size && header.block_size == id.block_size &&
                     header.number == id.number && header.store_length == id.store.size() &&
                     header.object_length == id.object.size() &&
                     names.size() == id.store.size() + id.object.size() &&
                     names.substr(0, id.store.size()) == id.store &&
                     names.substr(id.store.size()) == id.object;
  if (!is_it) return "it is another block, or of another version of the object";
  if (bytes.size() != id.length()) return "it is shorter than the block";
  if (checksum(bytes) != header.bytes_sum) return "its bytes are damaged";
  return {};
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
