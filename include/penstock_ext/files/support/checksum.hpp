// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Both halves of the product of two words, one over the other.
[[nodiscard]] inline std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using wide = unsigned __int128;
  const wide product = wide{a} * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
}

/// 64 bits that tell damaged bytes from whole ones; no defence against damage on purpose. 15 GB a
/// second and more.
///
/// Four lanes, as many as keep a core busy, take two words of 8 bytes each. Products of 128 bits:
/// those of 64 a compiler turns into vectors where a machine has them, which are slower.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  constexpr std::uint64_t odd = 0xd1342543de82ef95U;
  // Random: a word that is one of them makes the product 0, and its neighbour goes unseen.
  constexpr std::array<std::uint64_t, 8> keys{
      0x3c79fd52a1b0e68dU, 0xe21d7484c5934f0bU, 0x98b6e13f7ad2054bU, 0x51cf4a90d8e73b65U,
      0xb4073ec6295f8ad1U, 0x6fd215b83e9c74a7U, 0xca58906df3471e2bU, 0x17a3ecb5608d49f3U};
  const std::uint64_t length = bytes.size();
  std::uint64_t a = keys[0];
  std::uint64_t b = keys[2];
  std::uint64_t c = keys[4];
  std::uint64_t d = keys[6];
  const auto step = [&](const std::byte* block) {
    const auto word = [&](std::size_t i) {
      std::uint64_t value = 0;
      std::memcpy(&value, block + i * sizeof value, sizeof value);
      return value;
    };
    a = folded_product(a ^ word(0), keys[1] ^ word(1));
    b = folded_product(b ^ word(2), keys[3] ^ word(3));
    c = folded_product(c ^ word(4), keys[5] ^ word(5));
    d = folded_product(d ^ word(6), keys[7] ^ word(7));
  };
  std::array<std::byte, 64> last{};  // what is missing counts as 0: the length tells it from zeros
  for (; bytes.size() >= last.size(); bytes = bytes.subspan(last.size())) step(bytes.data());
  if (!bytes.empty()) std::memcpy(last.data(), bytes.data(), bytes.size());
  step(last.data());
  std::uint64_t sum = length;
  for (const std::uint64_t lane : {a, b, c, d}) {
    sum = (sum ^ lane) * odd;
    sum ^= sum >> 32U;
  }
  return sum;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
