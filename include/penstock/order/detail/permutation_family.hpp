// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/support/draw.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Many keyed bijections of one key, each as cheap to begin as to go on with: for orders that take
/// few elements of each of many shuffles.
///
/// The rounds are those of `permutation`; a hash of the number `which` changes the key's factors
/// and addends. Equal arguments give equal numbers on every machine. O(1) memory, trivially
/// copyable, immutable: any number of threads may share one.
class permutation_family {
 public:
  /// The bijections of `key`.
  explicit permutation_family(const random_key& key) noexcept {
    sample_generator gen{key, 0};
    salt_ = draw64(gen);
    for (std::size_t round = 0; round < rounds; ++round) {
      factor_[round] = draw64(gen) | 1;
      addend_[round] = draw64(gen);
    }
  }

  /// 64 random bits of bijection `which`.
  [[nodiscard]] std::uint64_t bits(std::uint64_t which) const noexcept {
    // The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
    // generators", 2014).
    std::uint64_t x = salt_ + which * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }

  /// What bijection `which` of [0, size) makes of `x`, for x < size <= 2^63.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t which, std::uint64_t size,
                                         std::uint64_t x) const noexcept {
    if (size == 1) return 0;
    const std::uint64_t first = bits(which);
    const int width = static_cast<int>(std::bit_width(size - 1));
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    const int shift = (width + 1) / 2;
    if (size > 64) {
      do x = mixed(x, first, mask, shift, std::make_index_sequence<rounds>{});
      while (x >= size);
      return x;
    }
    // Few bits mix slowly: after four passes the 8! orders of eight are uneven by a twentieth
    // still.
    do {
      std::uint64_t own = first;
      for (int pass = 0; pass < 6; ++pass) {
        x = mixed(x, own, mask, shift, std::make_index_sequence<rounds>{});
        own *= 0xBF58476D1CE4E5B9u;
        own ^= own >> 32;
      }
    } while (x >= size);
    return x;
  }

 private:
  static constexpr std::size_t rounds = 6;

  // Unrolled by hand, as in `permutation`.
  template <std::size_t... Round>
  std::uint64_t mixed(std::uint64_t x, std::uint64_t own, std::uint64_t mask, int shift,
                      std::index_sequence<Round...>) const noexcept {
    const auto round = [&](std::size_t which, std::uint64_t tweak) {
      x = (x * (factor_[which] + (tweak << 1)) + addend_[which] + (tweak >> 7)) & mask;
      x ^= x >> shift;
    };
    (round(Round, std::rotr(own, int{10 * Round})), ...);
    return x;
  }

  std::uint64_t salt_ = 0;
  std::array<std::uint64_t, rounds> factor_{};  // odd
  std::array<std::uint64_t, rounds> addend_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
