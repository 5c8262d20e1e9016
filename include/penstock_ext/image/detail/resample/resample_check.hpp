// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/image/detail/geometry_check.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

// What a resizer does besides weighing pixels.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether `box` has a pixel and lies inside a picture of `size`.
inline bool lies_inside(const image_box& box, const image_size& size) noexcept {
  return box.size.width != 0 && box.size.height != 0 && box.left < size.width &&
         box.top < size.height && box.size.width <= size.width - box.left &&
         box.size.height <= size.height - box.top;
}

/// Throws std::invalid_argument unless `plan` makes a picture like `out` of one like `in`.
inline void check_resize(const const_pixels& in, const image_plan& plan, const pixels& out) {
  const auto refuse = [](const std::string& expected, const std::string& found) {
    throw std::invalid_argument("resizer: expected " + expected + ", found " + found);
  };
  if (in.channels != out.channels || (in.channels != 1 && in.channels != 3 && in.channels != 4)) {
    refuse("1, 3 or 4 channels in both pictures",
           std::to_string(in.channels) + " and " + std::to_string(out.channels));
  }
  for (const image_size& size : {in.size, plan.scaled}) {
    if (!has_pixels(size)) {
      refuse("sides of 1 to 2^24 pixels", to_text(size));
    }
  }
  if (!lies_inside(plan.crop, in.size)) {
    refuse("a crop inside the picture of " + to_text(in.size), to_text(plan.crop));
  }
  if (!lies_inside(plan.kept, plan.scaled)) {
    refuse("a kept part inside the scaled crop of " + to_text(plan.scaled), to_text(plan.kept));
  }
  if (out.size != plan.size()) {
    refuse("a place for " + to_text(plan.size()) + " pixels", to_text(out.size));
  }
}

/// Copies `from` to `to`, which has its size.
inline void copy_rows(const const_pixels& from, const pixels& to) {
  for (std::size_t y = 0; y < to.size.height; ++y) {
    std::memcpy(to.row(y), from.row(y), to.size.width * to.channels);
  }
}

/// Zeros all of `out` but the part `inner`.
inline void clear_around(const pixels& out, const image_box& inner) {
  for (std::size_t y = 0; y < out.size.height; ++y) {
    const bool beside = y >= inner.top && y - inner.top < inner.size.height;
    const std::size_t left = beside ? inner.left : out.size.width;
    const std::size_t right = beside ? inner.left + inner.size.width : out.size.width;
    std::memset(out.row(y), 0, left * out.channels);
    std::memset(out.row(y) + right * out.channels, 0, (out.size.width - right) * out.channels);
  }
}

/// The source pixel of each of `count` from `first` on, when `length` become `scaled` and each
/// takes the one in which its middle lies. The place is a running sum from the first one on, as
/// Pillow's is, which may round otherwise than a product.
template <class Take>
void each_nearest(std::size_t length, std::size_t scaled, std::size_t first, std::size_t count,
                  Take take) {
  const double step = static_cast<double>(static_cast<float>(length)) / static_cast<double>(scaled);
  double at = step * 0.5;
  for (std::size_t i = 0; i < first + count; ++i, at += step) {
    if (i >= first) take(i - first, (std::min)(static_cast<std::size_t>(at), length - 1));
  }
}

/// Resizes `in`, the crop of `plan`, without weighing anything; `columns` is kept between calls.
template <std::size_t Channels>
void resize_nearest(const const_pixels& in, const image_plan& plan, const pixels& out,
                    std::vector<std::uint32_t>& columns) {
  const std::size_t width = out.size.width;
  columns.resize((std::max)(columns.size(), width));
  each_nearest(in.size.width, plan.scaled.width, plan.kept.left, width,
               [&](std::size_t x, std::size_t from) {
                 columns[plan.mirrored ? width - 1 - x : x] =
                     static_cast<std::uint32_t>(from * Channels);
               });
  each_nearest(in.size.height, plan.scaled.height, plan.kept.top, out.size.height,
               [&, at = columns.data()](std::size_t y, std::size_t from) {
                 const std::uint8_t* const row = in.row(from);
                 std::uint8_t* to = out.row(y);
                 for (std::size_t x = 0; x < width; ++x, to += Channels) {
                   std::memcpy(to, row + at[x], Channels);
                 }
               });
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
