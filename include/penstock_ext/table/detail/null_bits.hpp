// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Bit `index`, as Arrow counts: from the lowest of the first byte.
[[nodiscard]] inline bool bit_at(const std::byte* bits, std::uint64_t index) noexcept {
  return (std::to_integer<unsigned>(bits[index / 8]) >> (index % 8) & 1U) != 0;
}

/// The place of the first 0 among `count` bits from `begin` on, counted from there; `count` where
/// all are 1.
[[nodiscard]] inline std::uint64_t first_zero_bit(const std::byte* bits, std::uint64_t begin,
                                                  std::uint64_t count) noexcept {
  std::uint64_t i = 0;
  while (i < count) {
    if ((begin + i) % 8 == 0 && count - i >= 64) {
      std::uint64_t word = 0;
      std::memcpy(&word, bits + (begin + i) / 8, sizeof word);
      if (word == ~std::uint64_t{0}) {
        i += 64;
        continue;
      }
    }
    if (!bit_at(bits, begin + i)) return i;
    ++i;
  }
  return count;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
