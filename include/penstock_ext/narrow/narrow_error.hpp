// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/name.hpp>

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
