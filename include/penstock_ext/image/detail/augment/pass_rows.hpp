// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Walks over a picture of three channels that is not turned, as `nearest_walk` does over others.
class copy_walk {
 public:
  /// Before the first row of `in`.
  explicit copy_walk(const const_pixels& in) noexcept : in_(in) {}

  void begin_row() noexcept { at_ = in_.row(next_row_++); }
  void skip(std::size_t count) noexcept { at_ += count * 3; }
  void write(std::uint8_t* to, std::size_t count) noexcept {
    std::memcpy(to, at_, count * 3);
    at_ += count * 3;
  }

 private:
  const_pixels in_;
  std::size_t next_row_ = 0;
  const std::uint8_t* at_ = nullptr;
};

/// A part of a row that is worked on while it is in the nearest cache.
class row_stripe {
 public:
  static constexpr std::size_t longest = 512;  // pixels

  /// The first `count` pixels, as a picture of one row.
  [[nodiscard]] pixels view(std::size_t count) noexcept {
    return {room_.data(), {count, 1}, 3, count * 3};
  }

 private:
  std::array<std::uint8_t, longest * 3> room_;
};

/// Calls `use(stripe, x, y)` for all stripes of what `plan`, which does not resize, makes of the
/// picture that `walk` gives: (x, y) is where the stripe's first pixel goes.
template <class Walk, class Use>
void for_each_stripe(Walk walk, const image_plan& plan, Use use) {
  const image_size size = plan.size();
  const std::size_t left = plan.crop.left + plan.kept.left;
  const std::size_t begin = plan.border.left;
  row_stripe room;
  for (std::size_t y = 0; y < plan.crop.top + plan.kept.top; ++y) walk.begin_row();
  for (std::size_t y = 0; y < size.height; ++y) {
    const bool inside = y - plan.border.top < plan.kept.size.height;
    const std::size_t end = inside ? begin + plan.kept.size.width : begin;
    if (inside) {
      walk.begin_row();
      walk.skip(left);
    }
    for (std::size_t x = 0; x < size.width; x += row_stripe::longest) {
      const std::size_t stop = (std::min)(x + row_stripe::longest, size.width);
      const pixels stripe = room.view(stop - x);
      const std::size_t from = std::clamp(begin, x, stop);
      const std::size_t to = std::clamp(end, from, stop);
      std::memset(stripe.data, 0, (from - x) * 3);
      if (to > from) walk.write(stripe.data + (from - x) * 3, to - from);
      std::memset(stripe.data + (to - x) * 3, 0, (stop - to) * 3);
      if (plan.mirrored) {
        for (std::size_t a = 0, b = stop - x; a + 1 < b; ++a) {
          --b;
          std::swap_ranges(stripe.data + a * 3, stripe.data + a * 3 + 3, stripe.data + b * 3);
        }
      }
      use(stripe, plan.mirrored ? size.width - stop : x, y);
    }
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
