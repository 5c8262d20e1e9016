// SPDX-License-Identifier: BSL-1.0
// Parses arbitrary bytes as a cache block file. The file must be rejected, or have the names,
// length and checksums of its block. The bytes must also survive a round trip as the contents of a
// block, and be rejected after a single bit of the file is flipped.
#include <penstock_ext/store/cache/detail/block_disk.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

bool is_right(const ps::detail::block_id& id, std::span<const std::byte> file) {
  const std::size_t begin = (std::min)(file.size(), ps::detail::start_bytes(id));
  const auto start = file.first(begin);
  return ps::detail::is_start_of(id, start) && file.size() == begin + id.length() &&
         ps::detail::are_whole(id, start, 0, file.subspan(begin));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const std::span<const std::byte> bytes{first, size};
  const ps::detail::block_id usual{"s", "x", 250, 100, 2};
  if (is_right(usual, bytes)) {
    fuzz::require(size == ps::detail::start_bytes(usual) + 50, "it has the block's length");
    const std::uint64_t sum = ps::detail::checksum(bytes.last(50));
    fuzz::require(std::memcmp(&sum, data + size - 58, sizeof sum) == 0, "and its sum");
  }

  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const std::size_t middle = size == 0 ? 0 : data[0] % (size + 1);
  const ps::detail::block_id id{text.substr(0, middle / 2), text.substr(middle / 2, middle),
                                3 * size + 2, size + 1, 2};
  std::vector<std::byte> block(static_cast<std::size_t>(id.length()));
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = bytes[(i * 7) % size];
  std::vector<std::byte> file = ps::detail::block_start(id, block);
  file.insert(file.end(), block.begin(), block.end());
  fuzz::require(is_right(id, file), "what was written is right");
  const std::size_t at = (size == 0 ? 0 : data[size - 1] * std::size_t{37}) % file.size();
  file[at] ^= std::byte{1} << (size % 8);
  fuzz::require(!is_right(id, file), "one changed bit is noticed");
  file[at] ^= std::byte{1} << (size % 8);
  file.pop_back();
  fuzz::require(!is_right(id, file), "so is a byte that is missing");
  return 0;
}
