// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>

#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/image/augment/affine.hpp>
#include <penstock_ext/image/augment/color.hpp>
#include <penstock_ext/image/augment/to_chw.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/detail/augment/color_step.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// All of a picture, in its own size: what `random_flip` alone mirrors.
struct uncropped {
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator&) const noexcept {
    return {{0, 0, size}, size, {0, 0, size}};
  }
  [[nodiscard]] image_size size() const noexcept { return {}; }  // the picture's
};

/// Where a step of `one_pass` has its place, counted from 1; 0 for what is none.
template <class Step>
inline constexpr int pass_place = 0;
template <>
inline constexpr int pass_place<random_affine> = 1;
template <>
inline constexpr int pass_place<center_crop> = 2;
template <>
inline constexpr int pass_place<random_crop> = 2;
template <>
inline constexpr int pass_place<random_flip> = 2;
template <class Geometry>
inline constexpr int pass_place<flipped_geometry<Geometry>> = pass_place<Geometry>;
template <>
inline constexpr int pass_place<color_jitter> = 3;
template <>
inline constexpr int pass_place<grayscale> = 3;
template <>
inline constexpr int pass_place<to_chw> = 4;

/// Whether all are steps of a pass, in order, and all but those of colours single.
template <class... Steps>
consteval bool is_a_pass() {
  int last = 0;
  [[maybe_unused]] const auto follows = [&last](int place) {
    const bool fits = place > last || (place == 3 && last == 3);
    last = place;
    return fits;
  };
  return sizeof...(Steps) > 0 && (follows(pass_place<Steps>) && ...);
}

/// How many changes of colours a step makes at most.
template <class Step>
inline constexpr std::size_t most_changes = 0;
template <>
inline constexpr std::size_t most_changes<color_jitter> = 4;
template <>
inline constexpr std::size_t most_changes<grayscale> = 1;

/// What has been drawn for a picture.
template <std::size_t MostChanges>
struct drawn_pass {
  explicit drawn_pass(const image_size& in) noexcept : plan{{0, 0, in}, in, {0, 0, in}} {}

  const random_affine* turns = nullptr;  ///< null where nothing does
  affine_change turn;                    ///< what `turns` has drawn
  image_plan plan;                       ///< of the turned picture
  std::array<color_step, MostChanges> colors;
  std::size_t changes = 0;  ///< how many of `colors` are meant

  void draw(const random_affine& step, sample_generator& random) {
    turns = &step;
    turn = step.draw(plan.crop.size, random);
  }
  void draw(const random_flip& step, sample_generator& random) { draw(uncropped{} | step, random); }
  template <image_geometry Geometry>
  void draw(const Geometry& step, sample_generator& random) {
    plan = step.plan(plan.crop.size, random);
  }
  void draw(const color_jitter& step, sample_generator& random) {
    const color_changes made = step.draw(random);
    for (std::size_t i = 0; i < made.count; ++i) colors[changes++] = color_step{made.each[i]};
  }
  void draw(const grayscale&, sample_generator&) { colors[changes++] = color_step{}; }
  void draw(const to_chw&, sample_generator&) noexcept {}
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
