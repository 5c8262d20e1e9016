// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A sum of 256 bits, as bytes.
using sha256_sum = std::array<std::uint8_t, 32>;

/// SHA-256 of bytes, for signatures and for what servers say of a body. Source: FIPS 180-4.
class sha256 {
 public:
  /// Adds the bytes of `text` at the end.
  sha256& add(std::string_view text) noexcept { return add(std::as_bytes(std::span{text})); }

  /// Adds `bytes` at the end.
  sha256& add(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      const std::size_t filled = static_cast<std::size_t>(size_ % 64);
      const std::size_t count = (std::min)(bytes.size(), 64 - filled);
      std::memcpy(block_.data() + filled, bytes.data(), count);
      bytes = bytes.subspan(count);
      size_ += count;
      if (size_ % 64 == 0) mix();
    }
    return *this;
  }

  /// The sum of all that was added; nothing is to be added after it.
  [[nodiscard]] sha256_sum sum() noexcept {
    const std::uint64_t bits = size_ * 8;
    add_byte(0x80);
    while (size_ % 64 != 56) add_byte(0);
    for (unsigned shift = 64; shift > 0; shift -= 8) {
      add_byte(static_cast<std::uint8_t>(bits >> (shift - 8)));
    }
    sha256_sum bytes{};
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
    std::array<std::uint32_t, 64> word{};
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t k = 0; k < 4; ++k) word[i] = word[i] << 8U | block_[4 * i + k];
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = word[i - 15];
      const std::uint32_t b = word[i - 2];
      word[i] = word[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3U) + word[i - 7] +
                (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10U);
    }
    auto [a, b, c, d, e, f, g, h] = state_;
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
    for (std::size_t i = 0; i < 8; ++i) state_[i] += mixed[i];
  }

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

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> block_{};
  std::uint64_t size_ = 0;
};

/// The bytes of a sum as a text of 32 characters of any value.
[[nodiscard]] inline std::string bytes_of(const sha256_sum& sum) {
  return {sum.begin(), sum.end()};
}

/// A sum in 64 hexadecimal digits.
[[nodiscard]] inline std::string hex_of(const sha256_sum& sum) {
  std::string text;
  for (const std::uint8_t byte : sum) {
    text += "0123456789abcdef"[byte >> 4U];
    text += "0123456789abcdef"[byte & 15U];
  }
  return text;
}

/// HMAC with SHA-256. Source: RFC 2104.
[[nodiscard]] inline sha256_sum hmac_sha256(std::string_view key, std::string_view text) {
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
