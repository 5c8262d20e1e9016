// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstdint>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/augment/color.hpp>
#include <penstock_ext/image/detail/augment/color_ops.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A change of colours that is made to a picture part by part.
class color_step {
 public:
  /// Makes grey.
  color_step() = default;
  /// Makes `change`, whose numbers have been checked.
  explicit color_step(const color_change& change) noexcept
      : makes_grey_(false), of_(change.of), part_(static_cast<float>(change.by)) {
    if (of_ == color_property::brightness) table_ = blend_table(0, part_);
    if (of_ == color_property::hue) steps_ = static_cast<int>(change.by * 255);
  }

  /// Whether all of the picture counts: `set_mean` comes before the first part then.
  [[nodiscard]] bool needs_mean() const noexcept {
    return !makes_grey_ && of_ == color_property::contrast;
  }
  /// The mean grey of the picture.
  void set_mean(std::uint8_t grey) noexcept { table_ = blend_table(grey, part_); }

  /// Changes `part` of the picture in place.
  void operator()(const pixels& part, const hue_table& hues) const noexcept {
    if (makes_grey_) {
      make_grey(part);
    } else if (of_ == color_property::saturation) {
      blend_with_grey(part, part_);
    } else if (of_ == color_property::hue) {
      for_each_pixel(part, [&](std::uint8_t* rgb) { hues.turn(rgb, steps_); });
    } else {
      look_up(part, table_);
    }
  }

 private:
  bool makes_grey_ = true;
  color_property of_ = color_property::brightness;
  float part_ = 1;
  int steps_ = 0;
  std::array<std::uint8_t, 256> table_{};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
