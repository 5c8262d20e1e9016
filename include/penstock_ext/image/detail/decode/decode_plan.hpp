// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/image_decoder.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// `box`, given in pixels of `outer`, in those of the picture that `outer` lies in.
[[nodiscard]] constexpr image_box moved(const image_box& box, const image_box& outer) noexcept {
  return {outer.left + box.left, outer.top + box.top, box.size};
}

/// A plan whose crop keeps its size, with what is not kept cut off the crop.
[[nodiscard]] constexpr image_plan without_rest(image_plan plan) noexcept {
  plan.crop = moved(plan.kept, plan.crop);
  plan.scaled = plan.kept.size;
  plan.kept = {0, 0, plan.kept.size};
  return plan;
}

/// The part of the crop, in its pixels, that no filter of the resizer looks beyond for what is
/// kept.
[[nodiscard]] constexpr image_box needed_for(const image_plan& plan) noexcept {
  struct range {
    std::size_t first;
    std::size_t count;
  };
  // The widest filter reaches over three pixels on each side, of the scaled side where it shrinks;
  // one more for rounding.
  const auto needed = [](std::size_t length, std::size_t scaled, const range& kept) -> range {
    if (scaled == 0 || kept.count > scaled || kept.first > scaled - kept.count) return {0, length};
    const std::size_t reach = length > scaled ? 3 * length / scaled + 2 : 4;
    const std::size_t first = kept.first * length / scaled;
    const std::size_t end = ((kept.first + kept.count) * length + scaled - 1) / scaled;
    const std::size_t from = first - (std::min)(first, reach);
    return {from, (std::min)(length, end + reach) - from};
  };
  const range columns =
      needed(plan.crop.size.width, plan.scaled.width, {plan.kept.left, plan.kept.size.width});
  const range rows =
      needed(plan.crop.size.height, plan.scaled.height, {plan.kept.top, plan.kept.size.height});
  return {columns.first, rows.first, {columns.count, rows.count}};
}

/// The largest of 8, 4, 2 by which the crop may be decoded smaller and still be at least as large
/// as what it is resized to; 1 where there is none.
[[nodiscard]] constexpr unsigned denominator_for(const image_plan& plan) noexcept {
  for (const unsigned denominator : {8u, 4u, 2u}) {
    if (plan.crop.size.width / denominator >= plan.scaled.width &&
        plan.crop.size.height / denominator >= plan.scaled.height) {
      return denominator;
    }
  }
  return 1;
}

/// What `crop` of a picture of `size` becomes in the picture decoded to 1 / `denominator`: every
/// pixel that it touches.
[[nodiscard]] constexpr image_box scaled_down(const image_box& crop, unsigned denominator,
                                              const image_size& size) noexcept {
  const image_size smaller = scaled_down(size, denominator);
  const std::size_t left = crop.left / denominator;
  const std::size_t top = crop.top / denominator;
  const image_size end = scaled_down(
      image_size{crop.left + crop.size.width, crop.top + crop.size.height}, denominator);
  return {
      left,
      top,
      {(std::min)(end.width, smaller.width) - left, (std::min)(end.height, smaller.height) - top}};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
