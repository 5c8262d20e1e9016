// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <penstock/core/version.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The upper 16 bits of a float, for storing and copying: bit for bit CUDA's `__nv_bfloat16`. 8
/// significant bits over the whole range of floats. There is no arithmetic: a value is made of a
/// float and becomes one. Usable in kernels.
class bfloat16 {
 public:
  /// Any value.
  bfloat16() = default;

  /// The bfloat16 nearest to `value`, the even one of two; beyond the largest, infinity. What is
  /// not a number stays so, with the upper bits of its payload.
  PENSTOCK_HOST_DEVICE constexpr explicit bfloat16(float value) noexcept : bits_(nearest(value)) {}

  /// Its value, exactly: every bfloat16 is a float.
  PENSTOCK_HOST_DEVICE constexpr operator float() const noexcept {  // NOLINT: nothing is lost
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits_) << 16U);
  }

  /// The bfloat16 with these bits.
  [[nodiscard]] PENSTOCK_HOST_DEVICE static constexpr bfloat16 from_bits(
      std::uint16_t bits) noexcept {
    bfloat16 made{};
    made.bits_ = bits;
    return made;
  }
  /// The sign in the highest bit, 8 bits of exponent, 7 of the mantissa.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  PENSTOCK_HOST_DEVICE static constexpr std::uint16_t nearest(float value) noexcept {
    const auto wide = __builtin_bit_cast(std::uint32_t, value);
    std::uint32_t narrow = (wide + 0x7fffU + ((wide >> 16U) & 1U)) >> 16U;
    if ((wide & 0x7fffffffU) > 0x7f800000U) narrow = (wide >> 16U) | 0x40U;
    return static_cast<std::uint16_t>(narrow);
  }

  std::uint16_t bits_;
};

static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>,
              "copied to the device as bytes");

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
