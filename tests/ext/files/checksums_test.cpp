// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/support/checksums.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "support/catch.hpp"
#include "support/some_bytes.hpp"

namespace {

// Returns the CRC-32C of bytes, computed bit by bit.
std::uint32_t crc32c_by_bits(std::span<const std::uint8_t> bytes) {
  std::uint32_t state = 0xffffffffU;
  for (const std::uint8_t byte : bytes) {
    state ^= byte;
    for (int bit = 0; bit < 8; ++bit) state = state >> 1U ^ ((state & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~state;
}

}  // namespace

TEST_CASE("CRC-32C by the processor's instruction and by tables equals that by bits", "[files]") {
  const auto all = test::some_bytes<std::vector<std::uint8_t>>(200);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t size = 0; size <= 64; ++size) {
      const auto bytes = std::span{all}.subspan(begin, size);
      penstock::detail::crc32c_checksum whole;
      whole.add(std::as_bytes(bytes));
      penstock::detail::crc32c_checksum by_tables;
      by_tables.add_by_tables(std::as_bytes(bytes.first(size / 3)));
      by_tables.add_by_tables(std::as_bytes(bytes.subspan(size / 3)));
      REQUIRE(whole.value() == crc32c_by_bits(bytes));
      REQUIRE(by_tables.value() == whole.value());
    }
  }
}
