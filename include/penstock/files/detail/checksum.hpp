// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// 64 bits that tell damaged bytes from whole ones; no defence against damage on purpose.
/// Eight lanes, as many as keep a core busy, take a word of 8 bytes each. A step is a bijection of
/// the lane and one of the word, so that bytes that differ in one word never have the same sum.
/// Several GB a second.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  constexpr std::uint64_t odd = 0xd1342543de82ef95U;
  const std::uint64_t length = bytes.size();
  std::array<std::uint64_t, 8> lanes{1, 2, 3, 4, 5, 6, 7, 8};
  std::array<std::uint64_t, 8> words{};
  const auto step = [&] {
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      lanes[i] = (lanes[i] ^ words[i]) * odd;
      lanes[i] ^= lanes[i] >> 29U;  // a product's high bits reach the next one's low bits
    }
  };
  for (; bytes.size() >= sizeof words; bytes = bytes.subspan(sizeof words)) {
    std::memcpy(words.data(), bytes.data(), sizeof words);
    step();
  }
  words = {};  // what is missing in the last block counts as 0, and the length makes the difference
  if (!bytes.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  step();
  std::uint64_t sum = length;
  for (const std::uint64_t lane : lanes) {
    sum = (sum ^ lane) * odd;
    sum ^= sum >> 32U;
  }
  return sum;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
