// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The rounds of a bijection. A round computes x = (a x + c) mod 2^b, then x ^= x >> ceil(b / 2),
/// with a and c derived from a key.
struct mixing_rounds {
  static constexpr std::size_t count = 6;
  std::array<std::uint64_t, count> factor{};  // odd
  std::array<std::uint64_t, count> addend{};

  void draw(sample_generator& gen) noexcept {
    for (std::size_t round = 0; round < count; ++round) {
      factor[round] = draw64(gen) | 1;
      addend[round] = draw64(gen);
    }
  }

  /// Applies the rounds to `x`, a `bits`-bit number. `own` modifies all factors and addends.
  /// Unrolled by hand, because compilers do not unroll a loop at -O2, and the loop takes nearly
  /// twice as long.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t x, int bits,
                                         std::uint64_t own = 0) const noexcept {
    const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
    const auto round = [&](std::size_t which, std::uint64_t tweak) {
      x = (x * (factor[which] + (tweak << 1)) + addend[which] + (tweak >> 7)) & mask;
      x ^= x >> ((bits + 1) / 2);
    };
    [&]<std::size_t... Round>(std::index_sequence<Round...>) {
      (round(Round, std::rotr(own, int{10 * Round})), ...);
    }(std::make_index_sequence<count>{});
    return x;
  }
};

/// A keyed bijection on [0, n), which represents the shuffled order of an epoch without an index
/// list.
///
/// Trivially copyable, 176 bytes in size, and constructed in O(1) time. Each position costs the
/// same, so a loop can resume anywhere. The same (n, seed, epoch) tuple gives the same order on
/// every machine. Changing the seed or the epoch gives an unrelated order. Immutable and
/// thread-safe.
///
/// For 65 or more elements, the bijection consists of six `mixing_rounds` on b = ceil(log2 n) bits.
/// The rounds are repeated until the result lies in [0, n). For up to 64 elements, the bijection is
/// a table drawn by Fisher-Yates, in which all n! orders are equally likely up to about n = 27,
/// where the 96 bits of the stream no longer suffice.
///
/// Sources: Kensler, "Correlated multi-jittered sampling", Pixar memo 13-01, 2013, for the rounds;
/// Black, Rogaway, "Ciphers with arbitrary finite domains", 2002, for cycle walking, which repeats
/// the rounds. The number of rounds was measured: chi-square tests of positions, pairs, triples,
/// distances and related keys fail with five rounds and pass with six. VariablePhilox (Mitchell et
/// al., "Bandwidth-optimal random shuffling for GPUs", 2022) with 24 rounds is as uniform, but
/// takes six times as long. A Feistel network on Z_m x 2^j needs eight half rounds, and is faster
/// only with AVX-512 and many cycle-walking steps.
class permutation {
 public:
  /// Creates the order of `n` elements in `epoch`. Throws std::invalid_argument unless 1 <= n <=
  /// 2^63.
  permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch)
      : permutation(n, random_key{.seed = seed, .epoch = epoch, .stage = shuffle_stage}) {}

  /// Creates the order of `n` elements for `key`. Throws std::invalid_argument unless 1 <= n <=
  /// 2^63.
  permutation(std::uint64_t n, const random_key& key) : size_{n} {
    if (n == 0 || n > max_size) {
      throw std::invalid_argument(str_cat({"permutation: expected 1 <= n <= 2^63, found n = ", n}));
    }
    sample_generator gen{key, 0};
    if (n <= table_size) {
      for (std::uint32_t k = 0; k < n; ++k) {  // equivalent to `uniform`
        const auto other = draw_below<std::uint32_t, std::uint64_t>(k + 1, [&] { return gen(); });
        table_[k] = table_[other];
        table_[other] = static_cast<std::uint8_t>(k);
      }
      return;
    }
    // The cast is needed because libstdc++ 12 returns the argument type, whereas the standard
    // specifies int.
    bits_ = static_cast<int>(std::bit_width(n - 1));
    rounds_.draw(gen);
  }

  /// Returns the index at position `k`, which must be less than size().
  [[nodiscard]] std::uint64_t operator()(std::uint64_t k) const noexcept {
    assert(k < size_);
    if (size_ <= table_size) return table_[k & (table_size - 1)];
    do k = rounds_(k, bits_);
    while (k >= size_);
    return k;
  }

  /// Sets out[i] = (*this)(first + i). first + out.size() must not exceed size(). Takes only a few
  /// nanoseconds for each index, because the CPU computes several in parallel.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    assert(first <= size_ && out.size() <= size_ - first);
    if (size_ <= table_size) {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = table_[(first + i) & (table_size - 1)];
      return;
    }
    for (std::size_t done = 0; done < out.size(); done += chunk) {
      fill_chunk(first + done, out.subspan(done, (std::min)(chunk, out.size() - done)));
    }
  }

  /// Returns the number of elements.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

 private:
  static constexpr std::uint64_t max_size = std::uint64_t{1} << 63;
  static constexpr std::size_t table_size = 64;
  static constexpr std::size_t chunk = 64;

  void fill_chunk(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    // Local copies are used, because stores to `out` might alias the members.
    const mixing_rounds rounds = rounds_;
    const int bits = bits_;
    const std::uint64_t size = size_;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = rounds(first + i, bits);

    // Cycle walking repeats the rounds for each index that is not below n. If n is slightly larger
    // than a power of two, that is about half of the indices. A loop for each index would often
    // mispredict its branch, so each pass handles all positions whose bits in `outside` are set.
    static_assert(chunk <= std::numeric_limits<std::uint64_t>::digits);
    std::uint64_t outside = 0;
    for (std::size_t i = 0; i < out.size(); ++i) outside |= std::uint64_t{out[i] >= size} << i;
    while (outside != 0) {
      for (std::uint64_t left = outside; left != 0; left &= left - 1) {
        const auto place = static_cast<std::size_t>(std::countr_zero(left));
        out[place] = rounds(out[place], bits);
        outside ^= std::uint64_t{out[place] < size} << place;
      }
    }
  }

  std::uint64_t size_;
  int bits_ = 0;
  mixing_rounds rounds_;
  std::array<std::uint8_t, table_size> table_{};
};

static_assert(std::is_trivially_copyable_v<permutation>);

/// Returns a permutation of `n` elements, drawn from the stream `index` of `key`.
[[nodiscard]] inline permutation drawn_permutation(std::uint64_t n, const random_key& key,
                                                   std::uint64_t index) {
  sample_generator gen{key, index};
  const std::uint64_t seed = draw64(gen);
  return {n, seed, draw64(gen)};
}

/// A family of bijections with the same key. Switching between bijections is free, so the family
/// suits orders that draw a few elements from each of many shuffles.
///
/// Uses the rounds of `permutation`, whose factors and addends are modified by a hash of the
/// bijection index `which`. Equal arguments give equal numbers on every machine. O(1) memory,
/// trivially copyable, immutable and thread-safe.
class permutation_family {
 public:
  /// Creates the bijections of `key`.
  explicit permutation_family(const random_key& key) noexcept {
    sample_generator gen{key, 0};
    salt_ = draw64(gen);
    rounds_.draw(gen);
  }

  /// Returns 64 random bits of bijection `which`.
  [[nodiscard]] std::uint64_t bits(std::uint64_t which) const noexcept {
    // The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
    // generators", 2014).
    std::uint64_t x = salt_ + which * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
  }

  /// Maps `x` by bijection `which` of [0, size). Requires x < size <= 2^63.
  [[nodiscard]] std::uint64_t operator()(std::uint64_t which, std::uint64_t size,
                                         std::uint64_t x) const noexcept {
    const int width = static_cast<int>(std::bit_width(size - 1));
    // Small numbers need more passes. After four passes, the frequencies of the 8! orders of eight
    // elements still differ by 5 %.
    const std::uint64_t passes = size > 64 ? 1 : 6;
    do {
      for (std::uint64_t pass = 0; pass < passes; ++pass) {
        x = rounds_(x, width, bits(which + (pass << 60)));
      }
    } while (x >= size);
    return x;
  }

 private:
  std::uint64_t salt_ = 0;
  mixing_rounds rounds_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
