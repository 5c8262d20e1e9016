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
