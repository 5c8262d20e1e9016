// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/narrow/half.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// Returns the value of a half bit pattern as IEEE 754 defines it.
double meaning_of_half(std::uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10U) & 31U);
  const double mantissa = bits & 0x3ffU;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24)
                                         : std::ldexp(1.0 + mantissa / 1024.0, exponent - 15);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

bool is_nan_of_half(std::uint32_t bits) { return (bits & 0x7fffU) > 0x7c00U; }

std::uint32_t half_of(float value) { return ps::half{value}.bits(); }

#if defined(__x86_64__)
__attribute__((target("f16c"))) std::uint32_t half_by_processor(float value) {
  const __m128i made = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(made)) & 0xffffU;
}
#endif

static_assert(ps::half{1.0F}.bits() == 0x3c00 && ps::half::from_bits(0xc000) == -2.0F);
static_assert(std::is_convertible_v<ps::half, float> && !std::is_convertible_v<float, ps::half>);

}  // namespace

TEST_CASE("every half converts to a float and back unchanged", "[data][promise:exact-18]") {
  std::size_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto narrow = ps::half::from_bits(static_cast<std::uint16_t>(bits));
    const float wide = narrow;
    if (is_nan_of_half(bits)) {
      // A NaN stays a NaN with the same sign and payload, but becomes quiet.
      wrong += !std::isnan(wide) || half_of(wide) != (bits | 0x200U) ? 1U : 0U;
    } else if ((bits & 0x7fffU) == 0x7c00U) {
      wrong += !std::isinf(wide) || (wide < 0.0F) != (bits >= 0x8000U) ? 1U : 0U;
      wrong += half_of(wide) != bits ? 1U : 0U;
    } else {
      const double meant = meaning_of_half(bits);
      wrong += wide != meant || std::signbit(wide) != std::signbit(meant) ? 1U : 0U;
      wrong += half_of(wide) != bits ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("a float is rounded to the nearest half, ties to even", "[data][promise:exact-18]") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::size_t wrong = 0;
  // Tests the neighbors of every value, from 0 through the subnormal values to the largest value
  // and beyond it to infinity.
  for (std::uint32_t low = 0; low < 0x7c00; ++low) {
    const std::uint32_t high = low + 1;
    const double above = high == 0x7c00 ? 65536.0 : meaning_of_half(high);
    const auto middle = static_cast<float>((meaning_of_half(low) + above) / 2.0);
    for (const std::uint32_t sign : {0x0000U, 0x8000U}) {
      const float side = sign == 0 ? 1.0F : -1.0F;
      wrong += half_of(side * middle) != (sign | (low % 2 == 0 ? low : high)) ? 1U : 0U;
      wrong += half_of(side * std::nextafter(middle, 0.0F)) != (sign | low) ? 1U : 0U;
      wrong += half_of(side * std::nextafter(middle, infinity)) != (sign | high) ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
  CHECK(half_of(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(half_of(-0.0F) == 0x8000);
  CHECK(half_of(65519.996F) == 0x7bff);
  CHECK(half_of((std::numeric_limits<float>::max)()) == 0x7c00);
  CHECK(half_of(-infinity) == 0xfc00);
}

#if defined(__x86_64__)
TEST_CASE("the processor's own instruction makes the same half of floats of every size", "[data]") {
  if (!__builtin_cpu_supports("avx2")) return;  // clang 14 has no name for the F16C feature
  std::size_t wrong = 0;
  std::uint32_t state = 1;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    state = state * 1664525U + 1013904223U;
    for (const std::uint32_t lower : {0U, 0x1000U, state >> 16U, 0xffffU}) {
      const auto value = __builtin_bit_cast(float, upper << 16U | lower);
      wrong += half_of(value) != half_by_processor(value) ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
}
#endif
