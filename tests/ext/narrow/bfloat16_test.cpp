// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/narrow/half.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

std::uint32_t bfloat16_of(float value) { return ps::bfloat16{value}.bits(); }
float float_with_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

static_assert(ps::bfloat16{1.0F}.bits() == 0x3f80 && ps::bfloat16::from_bits(0xc000) == -2.0F);
static_assert(std::is_convertible_v<ps::bfloat16, float> &&
              !std::is_convertible_v<float, ps::bfloat16>);

}  // namespace

TEST_CASE("every bfloat16 converts to a float and back unchanged", "[data]") {
  std::size_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = ps::bfloat16::from_bits(static_cast<std::uint16_t>(bits));
    const bool is_nan = (bits & 0x7fffU) > 0x7f80U;
    wrong += std::isnan(wide) != is_nan ? 1U : 0U;
    if (!is_nan) wrong += __builtin_bit_cast(std::uint32_t, wide) != bits << 16U ? 1U : 0U;
    wrong += bfloat16_of(wide) != (is_nan ? bits | 0x40U : bits) ? 1U : 0U;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a float is rounded to the nearest bfloat16, ties to even", "[data][promise:exact-18]") {
  std::size_t wrong = 0;
  // Tests the neighbors of every value, up to the largest value and beyond it to infinity.
  for (std::uint32_t low = 0; low < 0x7f80; ++low) {
    for (const std::uint32_t sign : {0x0000U, 0x8000U}) {
      const std::uint32_t middle = (sign | low) << 16U | 0x8000U;
      const std::uint32_t even = low % 2 == 0 ? low : low + 1;
      wrong += bfloat16_of(float_with_bits(middle)) != (sign | even) ? 1U : 0U;
      wrong += bfloat16_of(float_with_bits(middle - 1)) != (sign | low) ? 1U : 0U;
      wrong += bfloat16_of(float_with_bits(middle + 1)) != (sign | (low + 1)) ? 1U : 0U;
    }
  }
  CHECK(wrong == 0);
  CHECK(bfloat16_of((std::numeric_limits<float>::max)()) == 0x7f80);
  CHECK(bfloat16_of(-0.0F) == 0x8000);
  // A NaN whose payload has only lower bits must not become infinity.
  CHECK(std::isnan(static_cast<float>(ps::bfloat16{float_with_bits(0x7f800001U)})));
}
