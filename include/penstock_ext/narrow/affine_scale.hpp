// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/name.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A sample that is to become bytes has an element for which no byte stands: an infinity, or what
/// is not a number.
class [[gnu::visibility("default")]] not_finite : public error {
 public:
  /// Element `element` of the field called `field`, of sample `sample`, is `value`.
  not_finite(const name& field, std::uint64_t sample, std::size_t element, float value)
      : error("narrowed: field \"" + field.str() + "\", sample " + std::to_string(sample) +
              ", element " + std::to_string(element) + ": a byte stands for a finite number, is " +
              spelled(value) +
              ": replace it by a map below, narrow to half or bfloat16, or leave the sample out"),
        sample_(sample),
        element_(element) {}
  /// The sample's index in the dataset that is narrowed.
  [[nodiscard]] std::uint64_t sample() const noexcept { return sample_; }
  /// The element's place in the field, counted in row-major order.
  [[nodiscard]] std::size_t element() const noexcept { return element_; }

 private:
  static std::string spelled(float value) {
    if (std::isnan(value)) return "nan";
    return value < 0.0F ? "-inf" : "inf";
  }

  std::uint64_t sample_;
  std::size_t element_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What numbers the 256 values of a byte stand for: byte b for `zero + scale * b`.
struct affine_scale {
  float scale = 1.0F;  ///< a step: what neighbouring bytes differ by
  float zero = 0.0F;   ///< the number that byte 0 stands for

  /// The number that `byte` stands for, rounded once: the same bits on device and host. Usable in
  /// kernels.
  [[nodiscard]] PENSTOCK_HOST_DEVICE float operator()(std::int8_t byte) const noexcept {
    return std::fma(static_cast<float>(byte), scale, zero);
  }

  friend constexpr bool operator==(const affine_scale&, const affine_scale&) = default;
};

/// The finest steps with which bytes reach from `least` to `most`, both finite, `least` not above
/// `most`.
///
/// Where 0 is between the two, it has a byte of its own, and every byte stands for a whole number
/// of steps, exactly: a number is off by at most half a step. Elsewhere the rounding of a float may
/// come to it. A single number is exact. The outermost byte may stand for half a step more than the
/// outermost number: beyond 3e38 that may be infinity.
[[nodiscard]] constexpr affine_scale affine_over(float least, float most) noexcept {
  if (!(least < most)) return {0.0F, least};
  const double low = static_cast<double>(least);
  const double high = static_cast<double>(most);
  const bool has_zero = low <= 0.0 && high >= 0.0;
  double step = (high - low) / 255.0;
  if (step < 0x1p-118) step = 0x1p-118;  // so that nothing of it is denormal
  // Rounded up to 16 significant bits, so that a product with a whole number of 8 bits is exact.
  const auto bits = __builtin_bit_cast(std::uint64_t, step);
  constexpr std::uint64_t rest = (std::uint64_t{1} << (52U - 15U)) - 1;
  const double scale = __builtin_bit_cast(double, (bits + rest) & ~rest);
  if (!has_zero) {
    return {static_cast<float>(scale), static_cast<float>(low + 128.0 * scale)};
  }
  // The byte of 0: rounded by truncation, which is right for a number that is not negative.
  const double steps_up = -low / scale + 0.5;
  const int byte = static_cast<int>(steps_up) - 128;
  return {static_cast<float>(scale), static_cast<float>(-scale * byte)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
