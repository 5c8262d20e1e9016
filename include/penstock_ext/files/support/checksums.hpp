// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The polynomial of CRC-32C (Castagnoli).
inline constexpr std::uint32_t crc32c_polynomial = 0x82f63b78U;

#if defined(__x86_64__)
/// Updates the state of a CRC-32C with the processor's instruction. Requires SSE4.2.
[[nodiscard, gnu::target("sse4.2")]] inline std::uint32_t crc32c_by_instruction(
    std::uint32_t state, std::span<const std::byte> bytes) noexcept {
  std::uint64_t wide = state;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
    wide = __builtin_ia32_crc32di(wide, little_endian<8>(bytes.data()));
  }
  state = static_cast<std::uint32_t>(wide);
  for (const std::byte byte : bytes) {
    state = __builtin_ia32_crc32qi(state, std::to_integer<unsigned char>(byte));
  }
  return state;
}
#endif

/// A reflected cyclic redundancy check. The initial value has all bits set, and the result is
/// inverted. The highest bit of `Polynomial` is the coefficient of the lowest power. Processes
/// eight bytes per step with eight tables. CRC-32C uses the processor's instruction if it is
/// available. Source of the tables: M. E. Kounavis, F. L. Berry, "Novel Table Lookup-Based
/// Algorithms for High-Performance CRC Generation", IEEE Transactions on Computers 57 (2008).
template <std::unsigned_integral Word, Word Polynomial>
class crc {
 public:
  /// Updates the checksum with `bytes`.
  void add(std::span<const std::byte> bytes) noexcept {
#if defined(__x86_64__)
    if constexpr (std::same_as<Word, std::uint32_t> && Polynomial == crc32c_polynomial) {
      if (__builtin_cpu_supports("sse4.2")) {
        state_ = crc32c_by_instruction(state_, bytes);
        return;
      }
    }
#endif
    add_by_tables(bytes);
  }
  /// Updates the checksum with `bytes` on any processor.
  void add_by_tables(std::span<const std::byte> bytes) noexcept {
    const table_set& table = tables();
    std::uint64_t state = state_;
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
      const std::uint64_t word = state ^ little_endian<8>(bytes.data());
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

  /// Returns the checksum of all added bytes.
  [[nodiscard]] Word value() const noexcept { return static_cast<Word>(~state_); }
  /// Returns the bytes of the checksum, most significant byte first.
  [[nodiscard]] std::array<std::uint8_t, sizeof(Word)> bytes() const noexcept {
    std::array<std::uint8_t, sizeof(Word)> bytes{};
    for (std::size_t i = 0; i < sizeof(Word); ++i) {
      bytes[sizeof(Word) - 1 - i] = static_cast<std::uint8_t>(~state_ >> (8 * i));
    }
    return bytes;
  }

 private:
  using table_set = std::array<std::array<Word, 256>, 8>;

  // Table k contains the states after a byte followed by k zero bytes. The tables are local to the
  // function, so that a program that only names the class does not instantiate them.
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

/// CRC-32, as in zlib, PNG and Ethernet.
using crc32_checksum = crc<std::uint32_t, 0xedb88320U>;
/// CRC-32C (Castagnoli), as in iSCSI.
using crc32c_checksum = crc<std::uint32_t, crc32c_polynomial>;
using crc64nvme_checksum = crc<std::uint64_t, 0x9a6c9329ac4bc9b5U>;  ///< CRC-64, as in NVM Express.

/// Formats bytes as lower-case hexadecimal digits, two for each byte.
[[nodiscard]] inline std::string hex_digits(std::span<const std::uint8_t> bytes) {
  constexpr const char* digits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
