// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <penstock/core/tensor_view.hpp>
#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/image/augment/affine.hpp>
#include <penstock_ext/image/augment/color.hpp>
#include <penstock_ext/image/augment/to_chw.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A color change that can be applied to an image in parts.
class color_step {
 public:
  /// Creates a conversion to gray.
  color_step() = default;
  /// Creates a color change. The caller must have validated `change`.
  explicit color_step(const color_change& change) noexcept
      : makes_grey_(false), of_(change.of), part_(static_cast<float>(change.by)) {
    if (of_ == color_property::brightness) table_ = blend_table(0, part_);
    if (of_ == color_property::hue) steps_ = static_cast<int>(change.by * 255);
  }

  /// Returns true if the change depends on the whole image. In that case, call `set_mean` before
  /// the first part.
  [[nodiscard]] bool needs_mean() const noexcept {
    return !makes_grey_ && of_ == color_property::contrast;
  }
  void set_mean(std::uint8_t grey) noexcept { table_ = blend_table(grey, part_); }

  /// Changes `part` in place, where `part` is a part of the image.
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

/// Iterates over an untransformed image with three channels. Has the interface of `nearest_walk`.
class copy_walk {
 public:
  /// Starts at the first row of `in`.
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

/// Number of pixels of a row that are processed together, so that they stay in the L1 cache.
inline constexpr std::size_t max_stripe = 512;

/// Applies `plan`, which must not resize, to the image of `walk`. Calls `use(stripe, x, y)` for all
/// stripes of the result. (x, y) is the position of the stripe's first pixel.
template <class Walk, class Use>
void for_each_stripe(Walk walk, const image_plan& plan, Use use) {
  const image_size size = plan.size();
  const std::size_t left = plan.crop.left + plan.kept.left;
  const std::size_t begin = plan.border.left;
  std::array<std::uint8_t, max_stripe * 3> room;
  for (std::size_t y = 0; y < plan.crop.top + plan.kept.top; ++y) walk.begin_row();
  for (std::size_t y = 0; y < size.height; ++y) {
    const bool inside = y - plan.border.top < plan.kept.size.height;
    const std::size_t end = inside ? begin + plan.kept.size.width : begin;
    if (inside) {
      walk.begin_row();
      walk.skip(left);
    }
    for (std::size_t x = 0; x < size.width; x += max_stripe) {
      const std::size_t stop = (std::min)(x + max_stripe, size.width);
      const pixels stripe{room.data(), {stop - x, 1}, 3, (stop - x) * 3};
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

/// A geometry that returns the whole image in its original size. `one_pass` uses it for a
/// `random_flip` without a crop.
struct uncropped {
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator&) const noexcept {
    return unresized({0, 0, size});
  }
  // Unused, because the result has the size of the image.
  [[nodiscard]] image_size size() const noexcept { return {}; }
};

/// Position of a step in `one_pass`, starting at 1, or 0 for other types.
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

/// Returns true if all types are steps of `one_pass` in the required order. Only color steps may
/// repeat.
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

/// Maximum number of color changes in a step.
template <class Step>
inline constexpr std::size_t max_changes = 0;
template <>
inline constexpr std::size_t max_changes<color_jitter> = 4;
template <>
inline constexpr std::size_t max_changes<grayscale> = 1;

/// The random parameters of all steps for one image.
template <std::size_t MostChanges>
struct drawn_pass {
  image_plan plan;                       ///< plan that is applied to the transformed image
  const random_affine* turns = nullptr;  ///< the affine step, or null
  affine_change turn = {};               ///< the transformation drawn by `turns`
  std::array<color_step, MostChanges> colors = {};
  std::size_t changes = 0;  ///< number of elements used in `colors`

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

/// Transforms, crops, flips, changes colors and converts to floats in stripes of 512 pixels,
/// without intermediate images. Computes only pixels inside the crop. The result is bit-identical
/// to the separate steps with a crop by `resizer` and the same generator.
///
///     const ps::one_pass augment{ps::random_affine{{.degrees = 15}},
///                                ps::random_crop{224} | ps::random_flip{},
///                                ps::color_jitter{{.brightness = 0.4}}, ps::to_chw{imagenet}};
///     auto more = photos | ps::map<floats>([augment](auto in, auto out, auto& random) {
///       augment(ps::as_pixels(ps::get<"image">(in)), ps::get<"x">(out), random);
///     });
///
/// Each step is optional, but the order is fixed: `random_affine`; `center_crop` or `random_crop`,
/// with or without `random_flip`, or `random_flip` alone; any number of `color_jitter` and
/// `grayscale`; `to_chw`. Any other order is a compile-time error. A contrast change needs the mean
/// of all pixels, so the steps after it need another pass over `out`. Never allocates. Thread-safe.
template <class... Steps>
class one_pass {
  static_assert(detail::is_a_pass<Steps...>(),
                "one_pass: expected random_affine, a crop or random_flip, color_jitter and "
                "grayscale, to_chw, in this order");
  static constexpr bool makes_planes = (std::same_as<Steps, to_chw> || ...);

 public:
  /// Takes the steps in the order in which they are applied.
  explicit one_pass(Steps... steps) : steps_(std::move(steps)...) {}

  /// Applies the steps to `in` and writes the result to `out`, which must not overlap `in`. Throws
  /// std::invalid_argument unless `in` and `out` have three channels and `out` has the result size.
  /// Also throws errors from the crop, such as `image_too_small`.
  void operator()(const const_pixels& in, const pixels& out, sample_generator& random) const
    requires(!makes_planes)
  {
    auto drawn = draw(in, random);
    if (out.channels != 3 || out.size != drawn.plan.size()) {
      throw std::invalid_argument("one_pass: expected to write " +
                                  detail::to_text(drawn.plan.size()) + " x 3, found " +
                                  detail::to_text(out.size) + " x " + std::to_string(out.channels));
    }
    const auto place = [&](std::size_t x, std::size_t y) { return out.row(y) + x * 3; };
    run(in, drawn, place, [&](const pixels& stripe, std::size_t x, std::size_t y) {
      std::memcpy(place(x, y), stripe.data, stripe.size.width * 3);
    });
  }

  /// Applies the steps to `in` and writes the result to the planes `out`. Throws
  /// std::invalid_argument unless `in` has three channels and `out` has the result extents. Also
  /// throws errors from the crop.
  template <std::size_t C, std::size_t H, std::size_t W>
    requires(makes_planes)
  void operator()(const const_pixels& in, const tensor_view<float, C, H, W>& out,
                  sample_generator& random) const {
    auto drawn = draw(in, random);
    const image_size size = drawn.plan.size();
    to_chw::require_planes(size, 3, out);
    const std::size_t plane = size.width * size.height;
    // Pixels that wait for the mean are stored as bytes in the last quarter of the float buffer.
    // These bytes are never overwritten before they are read. In an image of n pixels, the floats
    // of pixel i end at or before byte 8 n + 4 (i + 1), and the bytes of pixel i + 1 begin at byte
    // 9 n + 3 (i + 1).
    auto* const bytes = reinterpret_cast<std::uint8_t*>(out.data()) + plane * 9;
    const auto place = [&](std::size_t x, std::size_t y) {
      return bytes + (y * size.width + x) * 3;
    };
    run(in, drawn, place, [&](const pixels& stripe, std::size_t x, std::size_t y) {
      std::get<to_chw>(steps_).write(stripe.data, stripe.size.width,
                                     out.data() + y * size.width + x, plane);
    });
  }

 private:
  static constexpr std::size_t max_changes = (detail::max_changes<Steps> + ...);
  using drawn_pass = detail::drawn_pass<max_changes>;

  [[nodiscard]] drawn_pass draw(const const_pixels& in, sample_generator& random) const {
    detail::check_colours("one_pass", in);
    drawn_pass drawn{detail::unresized({0, 0, detail::checked_size("one_pass", in.size)})};
    std::apply([&](const Steps&... steps) { (drawn.draw(steps, random), ...); }, steps_);
    return drawn;
  }

  // Applies all color changes. Changes before the first contrast change are applied while the image
  // is read. `place(x, y)` returns the memory in which a stripe waits for the mean.
  // `finish(stripe, x, y)` receives each stripe after all changes.
  template <class Place, class Finish>
  void run(const const_pixels& in, drawn_pass& drawn, Place place, Finish finish) const {
    const image_size size = drawn.plan.size();
    std::uint64_t greys = 0;
    std::size_t first = 0;
    std::size_t end = next_mean(drawn, 0);
    const auto use = [&](const pixels& stripe, std::size_t x, std::size_t y) {
      for (std::size_t i = first; i < end; ++i) drawn.colors[i](stripe, hues_);
      if (end == drawn.changes) return finish(stripe, x, y);
      greys += detail::sum_of_greys(stripe);
      std::memcpy(place(x, y), stripe.data, stripe.size.width * 3);
    };
    if (drawn.turns != nullptr) {
      const auto matrix = detail::matrix_of(drawn.turn, in.size);
      detail::walk_over<3>(in, matrix, drawn.turns->sampling(), [&](const auto& walk) {
        detail::for_each_stripe(walk, drawn.plan, use);
      });
    } else {
      detail::for_each_stripe(detail::copy_walk{in}, drawn.plan, use);
    }
    const const_pixels waiting{place(0, 0), size, 3,
                               static_cast<std::size_t>(place(0, 1) - place(0, 0))};
    while (end < drawn.changes) {
      drawn.colors[end].set_mean(detail::mean_of(greys, size.width * size.height));
      greys = 0;
      first = end;
      end = next_mean(drawn, first + 1);
      detail::for_each_stripe(detail::copy_walk{waiting}, detail::unresized({0, 0, size}), use);
    }
  }

  // Returns the index of the first change at or after `first` that needs a mean. Returns the number
  // of changes if no such change follows.
  [[nodiscard]] static std::size_t next_mean(const drawn_pass& drawn, std::size_t first) noexcept {
    while (first < drawn.changes && !drawn.colors[first].needs_mean()) ++first;
    return first;
  }

  std::tuple<Steps...> steps_;
  detail::hue_table hues_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
