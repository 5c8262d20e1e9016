// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <penstock/core/version.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A bfloat16 storage type, which is the upper half of a float. Bit-compatible with CUDA's
/// `__nv_bfloat16`. Has 8 significant bits and the range of a float. Converts from and to float but
/// does not provide arithmetic. Usable in kernels.
class bfloat16 {
 public:
  /// Has an indeterminate value.
  bfloat16() = default;

  /// Rounds to nearest, ties to even. Values beyond the largest finite value become infinity. A NaN
  /// remains a NaN with the upper bits of its payload.
  PENSTOCK_HOST_DEVICE constexpr explicit bfloat16(float value) noexcept : bits_(nearest(value)) {}

  /// Returns the exact value.
  PENSTOCK_HOST_DEVICE constexpr operator float() const noexcept {  // NOLINT: nothing is lost
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits_) << 16U);
  }

  /// Returns the bfloat16 with these bits.
  [[nodiscard]] PENSTOCK_HOST_DEVICE static constexpr bfloat16 from_bits(
      std::uint16_t bits) noexcept {
    bfloat16 made{};
    made.bits_ = bits;
    return made;
  }
  /// Returns the bits: 1 sign bit, 8 exponent bits and 7 mantissa bits.
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

/// An IEEE 754 binary16 storage type, bit-compatible with CUDA's `__half`. Has 11 significant bits,
/// and absolute values from 2^-24 to 65,504. Converts from and to float but does not provide
/// arithmetic. Usable in kernels.
class half {
 public:
  /// Has an indeterminate value.
  half() = default;

  /// Rounds to nearest, ties to even. Values of 65,520 and above become infinity. A NaN remains a
  /// NaN with the upper bits of its payload. The result equals that of the CPU instruction (F16C).
  PENSTOCK_HOST_DEVICE constexpr explicit half(float value) noexcept : bits_(nearest(value)) {}

  /// Returns the exact value.
  PENSTOCK_HOST_DEVICE constexpr operator float() const noexcept {  // NOLINT: nothing is lost
    const std::uint32_t sign = (bits_ & 0x8000U) << 16U;
    const std::uint32_t magnitude = bits_ & 0x7fffU;
    std::uint32_t wide = (magnitude << 13U) + 0x38000000U;
    if (magnitude >= 0x7c00U) wide += 0x38000000U;  // infinity or NaN
    if (magnitude < 0x0400U) {
      wide = __builtin_bit_cast(std::uint32_t, static_cast<float>(magnitude) * 0x1p-24F);
    }
    return __builtin_bit_cast(float, sign | wide);
  }

  /// Returns the half with these bits.
  [[nodiscard]] PENSTOCK_HOST_DEVICE static constexpr half from_bits(std::uint16_t bits) noexcept {
    half made{};
    made.bits_ = bits;
    return made;
  }
  /// Returns the bits: 1 sign bit, 5 exponent bits and 10 mantissa bits.
  [[nodiscard]] PENSTOCK_HOST_DEVICE constexpr std::uint16_t bits() const noexcept { return bits_; }

 private:
  PENSTOCK_HOST_DEVICE static constexpr std::uint16_t nearest(float value) noexcept {
    const auto wide = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (wide >> 16U) & 0x8000U;
    const std::uint32_t magnitude = wide & 0x7fffffffU;
    // A carry beyond the largest exponent produces infinity.
    std::uint32_t narrow = (magnitude - 0x38000000U + 0x0fffU + ((magnitude >> 13U) & 1U)) >> 13U;
    if (magnitude < 0x38800000U) {
      // For values below the smallest normal half, the sum with 0.5 has a step of 2^-24, to which
      // the CPU rounds.
      const float sum = __builtin_bit_cast(float, magnitude) + 0.5F;
      narrow = __builtin_bit_cast(std::uint32_t, sum) - 0x3f000000U;
    }
    if (magnitude >= 0x47800000U) narrow = 0x7c00U;
    if (magnitude > 0x7f800000U) narrow = 0x7e00U | ((magnitude >> 13U) & 0x01ffU);
    return static_cast<std::uint16_t>(sign | narrow);
  }

  std::uint16_t bits_;
};

static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half>,
              "copied to the device as bytes");

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
