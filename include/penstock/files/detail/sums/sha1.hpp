// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A sum of 160 bits, as bytes.
using sha1_sum = std::array<std::uint8_t, 20>;

/// SHA-1, for sums of files that others wrote: it tells damage, and no intent. Source: FIPS 180-4.
class sha1 {
 public:
  /// Adds the bytes of `text` at the end.
  sha1& add(std::string_view text) noexcept {
    for (const char c : text) add_byte(static_cast<std::uint8_t>(c));
    return *this;
  }

  /// The sum of all that was added; nothing is to be added after it.
  [[nodiscard]] sha1_sum sum() noexcept {
    const std::uint64_t bits = size_ * 8;
    add_byte(0x80);
    while (size_ % 64 != 56) add_byte(0);
    for (unsigned shift = 64; shift > 0; shift -= 8) {
      add_byte(static_cast<std::uint8_t>(bits >> (shift - 8)));
    }
    sha1_sum bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
    }
    return bytes;
  }

 private:
  void add_byte(std::uint8_t byte) noexcept {
    block_[size_++ % 64] = byte;
    if (size_ % 64 == 0) mix();
  }

  void mix() noexcept {
    std::array<std::uint32_t, 80> word{};
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t k = 0; k < 4; ++k) word[i] = word[i] << 8U | block_[4 * i + k];
    }
    for (std::size_t i = 16; i < word.size(); ++i) {
      word[i] = std::rotl(word[i - 3] ^ word[i - 8] ^ word[i - 14] ^ word[i - 16], 1);
    }
    std::array<std::uint32_t, 5> now = state_;
    const auto rounds = [&](std::size_t first, std::uint32_t constant, const auto& chosen) {
      for (std::size_t i = first; i < first + 20; ++i) {
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
    for (std::size_t i = 0; i < now.size(); ++i) state_[i] += now[i];
  }

  std::array<std::uint32_t, 5> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<std::uint8_t, 64> block_{};
  std::uint64_t size_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
