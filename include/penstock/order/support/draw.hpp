// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A generator that the distributions below accept: every call gives 32 uniform bits
/// (`sample_generator`, `std::mt19937`, ...). Equivalent to `std::uniform_random_bit_generator`
/// without <random>, which would cost each program a tenth of a second of compile time.
template <class Generator>
concept random_bits32 = requires(Generator& gen) {
  { gen() } -> std::unsigned_integral;
  { (Generator::min)() } -> std::same_as<std::invoke_result_t<Generator&>>;
  { (Generator::max)() } -> std::same_as<std::invoke_result_t<Generator&>>;
} && (Generator::min)() == 0 && (Generator::max)() == 0xffffffffu;

template <class T>
concept real = std::same_as<T, float> || std::same_as<T, double>;

template <class T>
concept integer = std::integral<T> && !std::same_as<T, bool>;

template <random_bits32 Generator>
constexpr std::uint32_t draw32(Generator& gen) {
  return static_cast<std::uint32_t>(gen());
}

template <random_bits32 Generator>
constexpr std::uint64_t draw64(Generator& gen) {
  const std::uint64_t high = draw32(gen);
  return high << 32 | draw32(gen);
}

/// The shortest text that reads back as `value`.
template <real Real>
std::string to_text(Real value) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// A multiple of 2^-53 in [0, 1), from two words.
template <random_bits32 Generator>
constexpr double draw_unit(Generator& gen) {
  return static_cast<double>(draw64(gen) >> 11) * 0x1p-53;
}

/// Uniform in [0, range) without bias and nearly without division. `Word` has the bits of one draw,
/// `Product` twice as many. Source: Lemire, "Fast random integer generation in an interval", 2019.
template <class Word, class Product, class Draw>
constexpr Word draw_below(Word range, Draw draw) {
  Product product = Product{draw()} * range;
  if (static_cast<Word>(product) < range) {
    const Word reject_below = static_cast<Word>(Word{0} - range) % range;
    while (static_cast<Word>(product) < reject_below) product = Product{draw()} * range;
  }
  return static_cast<Word>(product >> std::numeric_limits<Word>::digits);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
