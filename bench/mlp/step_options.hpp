// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

namespace mlp {

/// What operands of products are rounded to.
enum class precision_choice {
  fp32,  ///< nothing
  fp16,  ///< half; losses are scaled
  bf16,  ///< bfloat16
};

[[nodiscard]] constexpr std::string_view name_of(precision_choice precision) noexcept {
  constexpr std::string_view names[] = {"fp32", "fp16", "bf16"};
  return names[static_cast<std::size_t>(precision)];
}

/// What a step is, on any device.
struct step_options {
  precision_choice precision = precision_choice::fp32;
  std::size_t accumulate = 1;  ///< batches of a step

  /// Whether the plain step of `network` is meant, or the one of `mixed_steps`.
  [[nodiscard]] constexpr bool is_plain() const noexcept {
    return precision == precision_choice::fp32 && accumulate == 1;
  }
};

}  // namespace mlp
