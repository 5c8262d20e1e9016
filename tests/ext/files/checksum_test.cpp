// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/support/sums.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("a checksum sees each bit, each length and each change of place", "[files]") {
  std::vector<std::byte> bytes(203);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  std::vector<std::uint64_t> sums{ps::detail::checksum(bytes)};
  for (std::size_t i = 0; i < bytes.size() * 8; ++i) {
    const auto bit = static_cast<std::byte>(1U << (i % 8));
    bytes[i / 8] ^= bit;
    sums.push_back(ps::detail::checksum(bytes));
    bytes[i / 8] ^= bit;
  }
  std::vector<std::byte> zeros;
  for (std::size_t size = 0; size < 200; ++size) {
    sums.push_back(ps::detail::checksum(zeros));
    zeros.push_back(std::byte{});
  }
  for (std::ptrdiff_t one = 0; one < 24; ++one) {
    for (std::ptrdiff_t other = one + 1; other < 25; ++other) {
      auto moved = bytes;
      const auto word = moved.begin() + 8 * one;
      std::swap_ranges(word, word + 8, moved.begin() + 8 * other);
      sums.push_back(ps::detail::checksum(moved));
    }
  }
  const std::size_t count = sums.size();
  std::sort(sums.begin(), sums.end());
  CHECK(std::unique(sums.begin(), sums.end()) - sums.begin() == static_cast<std::ptrdiff_t>(count));
}

TEST_CASE("a checksum counts nothing beside its bytes", "[files]") {
  for (std::size_t size = 0; size < 130; ++size) {
    std::vector<std::byte> bytes(size + 2, std::byte{7});
    const std::span<const std::byte> inside{bytes.data() + 1, size};
    const std::uint64_t sum = ps::detail::checksum(inside);
    bytes.front() = bytes.back() = std::byte{9};
    CHECK(ps::detail::checksum(inside) == sum);
  }
}
