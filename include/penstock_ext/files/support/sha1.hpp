// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/support/sha_blocks.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The rounds of SHA-1.
struct sha1_rounds {
  static constexpr std::array<std::uint32_t, 5> initial{0x67452301, 0xefcdab89, 0x98badcfe,
                                                        0x10325476, 0xc3d2e1f0};

  /// Mixes a block of 16 words into a state.
  static void mix(std::array<std::uint32_t, 5>& state,
                  std::span<const std::uint32_t, 16> block) noexcept {
    std::array<std::uint32_t, 80> word{};
    for (std::size_t i = 0; i < block.size(); ++i) word[i] = block[i];
    for (std::size_t i = block.size(); i < word.size(); ++i) {
      word[i] = std::rotl(word[i - 3] ^ word[i - 8] ^ word[i - 14] ^ word[i - 16], 1);
    }
    std::array<std::uint32_t, 5> now = state;
    const auto rounds = [&](std::size_t begin, std::uint32_t constant, const auto& chosen) {
      for (std::size_t i = begin; i < begin + 20; ++i) {
        const std::uint32_t next =
            std::rotl(now[0], 5) + chosen(now[1], now[2], now[3]) + now[4] + constant + word[i];
        now = {next, now[0], std::rotl(now[1], 30), now[2], now[3]};
      }
    };
    using bits = std::uint32_t;
    const auto parity = [](bits x, bits y, bits z) { return x ^ y ^ z; };
    rounds(0, 0x5a827999, [](bits x, bits y, bits z) { return (x & y) | (~x & z); });
    rounds(20, 0x6ed9eba1, parity);
    rounds(40, 0x8f1bbcdc, [](bits x, bits y, bits z) { return (x & y) | (x & z) | (y & z); });
    rounds(60, 0xca62c1d6, parity);
    for (std::size_t i = 0; i < now.size(); ++i) state[i] += now[i];
  }
};

/// SHA-1, for sums of files that others wrote: it tells damage, and no intent.
using sha1 = sha_blocks<sha1_rounds>;

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
