// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The name of a field, usable as a template argument: `field<"image", float>`, `get<"image">(b)`.
///
/// A string literal of up to 32 characters, packed into four 64-bit words. It is a plain structural
/// type and not the usual `fixed_string<N>` over a char array, because nvcc 13.0 rejects the latter
/// in a kernel's signature, as a kernel's template argument and in an extended lambda's capture.
struct name {
  /// The maximum number of characters.
  static constexpr std::size_t max_size = 32;

  std::uint64_t word0 = 0;
  std::uint64_t word1 = 0;
  std::uint64_t word2 = 0;
  std::uint64_t word3 = 0;

  /// Makes a name of a literal of 1 to `max_size` characters.
  template <std::size_t Size>
  consteval name(const char (&text)[Size]) {  // NOLINT: implicit, so that a literal is a name
    static_assert(Size >= 2, "penstock::name: a field's name must not be empty");
    static_assert(Size - 1 <= max_size, "penstock::name: a field's name has at most 32 characters");
    std::uint64_t words[4] = {};
    for (std::size_t i = 0; i + 1 < Size; ++i) {
      words[i / 8] |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i]))
                      << (8 * (i % 8));
    }
    word0 = words[0];
    word1 = words[1];
    word2 = words[2];
    word3 = words[3];
  }

  /// From the packed words: the form in which nvcc passes a template argument to the host compiler.
  constexpr name(std::uint64_t w0, std::uint64_t w1, std::uint64_t w2, std::uint64_t w3) noexcept
      : word0(w0), word1(w1), word2(w2), word3(w3) {}

  /// The i-th character, 0 past the end.
  [[nodiscard]] constexpr char operator[](std::size_t i) const noexcept {
    const std::uint64_t words[4] = {word0, word1, word2, word3};
    return static_cast<char>(static_cast<unsigned char>((words[i / 8] >> (8 * (i % 8))) & 0xffU));
  }

  /// The number of characters.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    std::size_t count = 0;
    while (count < max_size && (*this)[count] != '\0') ++count;
    return count;
  }

  /// The characters as a string, for messages.
  [[nodiscard]] std::string str() const {
    std::string text(size(), '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = (*this)[i];
    return text;
  }

  friend constexpr bool operator==(const name&, const name&) = default;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
