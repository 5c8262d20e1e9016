// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>

#include <penstock/core/support/host_device_begin.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a sample that is narrowed to bytes contains an infinity or NaN.
class [[gnu::visibility("default")]] not_finite : public error {
 public:
  /// Describes `value` in element `element` of the field `field` in sample `sample`.
  not_finite(const name& field, std::uint64_t sample, std::size_t element, float value)
      : error("narrowed: field \"" + field.str() + "\", sample " + std::to_string(sample) +
              ", element " + std::to_string(element) +
              ": a byte can represent only a finite number, but the value is " + spelled(value) +
              ": replace the value in a map before `narrowed`, narrow to half or bfloat16, or "
              "exclude the sample"),
        sample_(sample),
        element_(element) {}
  /// Returns the sample index in the narrowed dataset.
  [[nodiscard]] std::uint64_t sample() const noexcept { return sample_; }
  /// Returns the row-major index of the element in the field.
  [[nodiscard]] std::size_t element() const noexcept { return element_; }

 private:
  static std::string spelled(float value) {
    if (std::isnan(value)) return "nan";
    return value < 0.0F ? "-inf" : "inf";
  }

  std::uint64_t sample_;
  std::size_t element_;
};

/// An affine quantization: byte b represents `zero + scale * b`.
struct affine_scale {
  float scale = 1.0F;  ///< step between adjacent bytes
  float zero = 0.0F;   ///< value of byte 0

  /// Returns the float that `byte` represents, `zero + scale * byte`, with a single rounding. The
  /// result is bit-identical on host and device. Usable in kernels.
  [[nodiscard]] PENSTOCK_HOST_DEVICE float operator()(std::int8_t byte) const noexcept {
    return std::fma(static_cast<float>(byte), scale, zero);
  }

  friend constexpr bool operator==(const affine_scale&, const affine_scale&) = default;
};

/// Returns the finest scale whose bytes cover the closed interval [`min`, `max`]. Both must be
/// finite, with `min` <= `max`.
///
/// If the range contains 0, a byte represents 0 exactly. Every byte is then an exact multiple of
/// the step, so the error is at most half a step. Otherwise the error may also include a float
/// rounding error. A single-value range is exact. The outermost byte may exceed the range by half a
/// step, which may overflow to infinity beyond 3e38.
[[nodiscard]] constexpr affine_scale affine_over(float min, float max) noexcept {
  if (!(min < max)) return {0.0F, min};
  const double low = static_cast<double>(min);
  const double high = static_cast<double>(max);
  const bool has_zero = low <= 0.0 && high >= 0.0;
  double step = (high - low) / 255.0;
  if (step < 0x1p-118) step = 0x1p-118;  // avoids denormals
  // Rounds up to 16 significant bits, so that a product with an 8-bit integer is exact.
  const auto bits = __builtin_bit_cast(std::uint64_t, step);
  constexpr std::uint64_t rest = (std::uint64_t{1} << (52U - 15U)) - 1;
  const double scale = __builtin_bit_cast(double, (bits + rest) & ~rest);
  if (!has_zero) {
    return {static_cast<float>(scale), static_cast<float>(low + 128.0 * scale)};
  }
  // The byte that represents 0, rounded by truncation, which is correct for a non-negative number.
  const double steps_up = -low / scale + 0.5;
  const int byte = static_cast<int>(steps_up) - 128;
  return {static_cast<float>(scale), static_cast<float>(-scale * byte)};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock

#include <penstock/core/support/host_device_end.hpp>
