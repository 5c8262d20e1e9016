// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/support/sha_blocks.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The rounds of SHA-256.
struct sha256_rounds {
  static constexpr std::array<std::uint32_t, 8> initial{0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                                        0xa54ff53a, 0x510e527f, 0x9b05688c,
                                                        0x1f83d9ab, 0x5be0cd19};

  /// Mixes a block of 16 words into a state.
  static void mix(std::array<std::uint32_t, 8>& state,
                  std::span<const std::uint32_t, 16> block) noexcept {
    std::array<std::uint32_t, 64> word{};
    for (std::size_t i = 0; i < block.size(); ++i) word[i] = block[i];
    for (std::size_t i = block.size(); i < word.size(); ++i) {
      const std::uint32_t a = word[i - 15];
      const std::uint32_t b = word[i - 2];
      word[i] = word[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3U) + word[i - 7] +
                (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10U);
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                  ((e & f) ^ (~e & g)) + constants[i] + word[i];
      const std::uint32_t second =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + first;
      d = c;
      c = b;
      b = a;
      a = first + second;
    }
    const std::array<std::uint32_t, 8> mixed{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state[i] += mixed[i];
  }

 private:
  static constexpr std::array<std::uint32_t, 64> constants{
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
};

/// SHA-256, for signatures and for what servers and indices say of bytes.
using sha256 = sha_blocks<sha256_rounds>;

/// A sum as a text of 32 characters of any value.
[[nodiscard]] inline std::string bytes_of(const sha256::sum_type& sum) {
  return {sum.begin(), sum.end()};
}

/// HMAC with SHA-256. Source: RFC 2104.
[[nodiscard]] inline sha256::sum_type hmac_sha256(std::string_view key, std::string_view text) {
  std::string inner = key.size() > 64 ? bytes_of(sha256{}.add(key).sum()) : std::string{key};
  inner.resize(64, '\0');
  std::string outer = inner;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return sha256{}.add(outer).add(bytes_of(sha256{}.add(inner).add(text).sum())).sum();
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
