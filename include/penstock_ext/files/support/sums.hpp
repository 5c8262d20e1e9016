// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/support/system_file.hpp>

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

/// A cyclic redundancy check whose bits go in from the lowest: it begins with all ones, and its
/// value is inverted. `Polynomial` is written with its lowest power as the highest bit. Takes eight
/// bytes a step, by eight tables. Source: M. E. Kounavis, F. L. Berry, "Novel Table Lookup-Based
/// Algorithms for High-Performance CRC Generation", IEEE Transactions on Computers 57 (2008).
template <std::unsigned_integral Word, Word Polynomial>
class crc {
 public:
  /// Adds `bytes` at the end.
  void add(std::span<const std::byte> bytes) noexcept {
    const table_set& table = tables();
    std::uint64_t state = state_;
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      std::uint64_t word = 0;
      for (std::size_t i = 0; i < 8; ++i) {
        word |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
      }
      word ^= state;
      state = table[7][word & 0xffU] ^ table[6][word >> 8U & 0xffU] ^
              table[5][word >> 16U & 0xffU] ^ table[4][word >> 24U & 0xffU] ^
              table[3][word >> 32U & 0xffU] ^ table[2][word >> 40U & 0xffU] ^
              table[1][word >> 48U & 0xffU] ^ table[0][word >> 56U];
    }
    for (const std::byte byte : bytes) {
      state = state >> 8U ^ table[0][(state ^ std::to_integer<std::uint64_t>(byte)) & 0xffU];
    }
    state_ = static_cast<Word>(state);
  }

  /// The check of all that was added, its highest byte first.
  [[nodiscard]] std::array<std::uint8_t, sizeof(Word)> sum() const noexcept {
    std::array<std::uint8_t, sizeof(Word)> bytes{};
    for (std::size_t i = 0; i < sizeof(Word); ++i) {
      bytes[sizeof(Word) - 1 - i] = static_cast<std::uint8_t>(~state_ >> (8 * i));
    }
    return bytes;
  }

 private:
  using table_set = std::array<std::array<Word, 256>, 8>;

  // Table k has what a byte becomes that k more bytes of 0 follow. In the function, so that a
  // program that only names the class compiles none of it.
  [[nodiscard]] static const table_set& tables() noexcept {
    static constexpr table_set made = [] {
      table_set all{};
      for (std::size_t byte = 0; byte < 256; ++byte) {
        auto rest = static_cast<Word>(byte);
        for (int bit = 0; bit < 8; ++bit) {
          rest = static_cast<Word>(rest >> 1U) ^ ((rest & 1U) != 0 ? Polynomial : Word{0});
        }
        all[0][byte] = rest;
      }
      for (std::size_t k = 1; k < 8; ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
          const Word before = all[k - 1][byte];
          all[k][byte] = static_cast<Word>(before >> 8U) ^ all[0][before & 0xffU];
        }
      }
      return all;
    }();
    return made;
  }

  Word state_ = (std::numeric_limits<Word>::max)();
};

using crc32_sum = crc<std::uint32_t, 0xedb88320U>;              ///< of zlib, PNG and Ethernet
using crc32c_sum = crc<std::uint32_t, 0x82f63b78U>;             ///< Castagnoli's, as iSCSI has it
using crc64nvme_sum = crc<std::uint64_t, 0x9a6c9329ac4bc9b5U>;  ///< as NVM Express has it

/// Bytes as hexadecimal digits, two each, in small letters.
[[nodiscard]] inline std::string hex_digits(std::span<const std::uint8_t> bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

/// What the SHA family has in common: bytes are taken in blocks of 64, and the last one is padded
/// with their number of bits. `Rounds` has the initial state, an array of words, and mixes the words
/// of a block into a state. Source: FIPS 180-4.
template <class Rounds>
class sha_blocks {
  using state_type = std::remove_const_t<decltype(Rounds::initial)>;

 public:
  /// The sum, as bytes.
  using sum_type = std::array<std::uint8_t, sizeof(state_type)>;

  /// Adds the bytes of `text` at the end.
  sha_blocks& add(std::string_view text) noexcept { return add(std::as_bytes(std::span{text})); }

  /// Adds `bytes` at the end.
  sha_blocks& add(std::span<const std::byte> bytes) noexcept {
    while (!bytes.empty()) {
      const auto filled = static_cast<std::size_t>(size_ % block_.size());
      const std::size_t count = (std::min)(bytes.size(), block_.size() - filled);
      std::memcpy(block_.data() + filled, bytes.data(), count);
      bytes = bytes.subspan(count);
      size_ += count;
      if (size_ % block_.size() == 0) mix();
    }
    return *this;
  }

  /// The sum of all that was added; nothing is to be added after it.
  [[nodiscard]] sum_type sum() noexcept {
    // A bit of 1, bits of 0 up to the block's last eight bytes, and there the number of bits.
    std::array<std::byte, 72> padding{std::byte{0x80}};
    const auto filled = static_cast<std::size_t>(size_ % block_.size());
    const std::size_t zeros_end = filled < 56 ? 56 - filled : 120 - filled;
    const std::uint64_t bits = size_ * 8;
    for (std::size_t i = 0; i < 8; ++i) {
      padding[zeros_end + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
    }
    add(std::span{padding}.first(zeros_end + 8));
    sum_type bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
    }
    return bytes;
  }

 private:
  void mix() noexcept {
    std::array<std::uint32_t, 16> words{};
    for (std::size_t i = 0; i < block_.size(); ++i) words[i / 4] = words[i / 4] << 8U | block_[i];
    Rounds::mix(state_, words);
  }

  state_type state_ = Rounds::initial;
  std::array<std::uint8_t, 64> block_{};
  std::uint64_t size_ = 0;
};

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

/// XXH64 with the seed 0, for sums of files: it tells damage, and no intent. Source: Y. Collet,
/// "xxHash fast digest algorithm", the specification 0.1.1.
class xxh64 {
 public:
  /// Adds the bytes of `text` at the end.
  xxh64& add(std::string_view text) noexcept {
    const auto held = static_cast<std::size_t>(size_ % stripe);
    size_ += text.size();
    if (held != 0) {
      const std::size_t piece = (std::min)(text.size(), stripe - held);
      std::memcpy(block_.data() + held, text.data(), piece);
      text.remove_prefix(piece);
      if (held + piece < stripe) return *this;
      mix(block_.data());
    }
    for (; text.size() >= stripe; text.remove_prefix(stripe)) {
      std::memcpy(block_.data(), text.data(), stripe);
      mix(block_.data());
    }
    if (!text.empty()) std::memcpy(block_.data(), text.data(), text.size());
    return *this;
  }

  /// The sum of all that was added.
  [[nodiscard]] std::uint64_t sum() const noexcept {
    std::uint64_t hash = prime5;
    if (size_ >= stripe) {
      hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
             std::rotl(lanes_[3], 18);
      for (const std::uint64_t lane : lanes_) hash = (hash ^ step(0, lane)) * prime1 + prime4;
    }
    hash += size_;
    const std::byte* at = block_.data();
    auto left = static_cast<std::size_t>(size_ % stripe);
    for (; left >= 8; left -= 8, at += 8) {
      hash = std::rotl(hash ^ step(0, little_endian<8>(at)), 27) * prime1 + prime4;
    }
    if (left >= 4) {
      hash = std::rotl(hash ^ little_endian<4>(at) * prime1, 23) * prime2 + prime3;
      left -= 4;
      at += 4;
    }
    for (; left > 0; --left, ++at) {
      hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(*at) * prime5, 11) * prime1;
    }
    hash = (hash ^ hash >> 33U) * prime2;
    hash = (hash ^ hash >> 29U) * prime3;
    return hash ^ hash >> 32U;
  }

 private:
  static constexpr std::size_t stripe = 32;
  static constexpr std::uint64_t prime1 = 0x9e3779b185ebca87U;
  static constexpr std::uint64_t prime2 = 0xc2b2ae3d27d4eb4fU;
  static constexpr std::uint64_t prime3 = 0x165667b19e3779f9U;
  static constexpr std::uint64_t prime4 = 0x85ebca77c2b2ae63U;
  static constexpr std::uint64_t prime5 = 0x27d4eb2f165667c5U;

  [[nodiscard]] static std::uint64_t step(std::uint64_t lane, std::uint64_t word) noexcept {
    return std::rotl(lane + word * prime2, 31) * prime1;
  }
  void mix(const std::byte* from) noexcept {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i] = step(lanes_[i], little_endian<8>(from + 8 * i));
    }
  }

  std::array<std::uint64_t, 4> lanes_{prime1 + prime2, prime2, 0, 0 - prime1};
  std::array<std::byte, stripe> block_{};  // its first size_ % stripe bytes are not mixed yet
  std::uint64_t size_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
