// SPDX-License-Identifier: BSL-1.0
#pragma once

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
#include <penstock_ext/image/augment/to_chw.hpp>
#include <penstock_ext/image/detail/augment/color_ops.hpp>
#include <penstock_ext/image/detail/augment/pass_rows.hpp>
#include <penstock_ext/image/detail/augment/pass_steps.hpp>
#include <penstock_ext/image/detail/geometry_check.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Turns, crops, mirrors, changes colours and makes floats, stripe by stripe of 512 pixels, without
/// a picture between the steps: what the crop leaves out is not computed. The result, and what is
/// drawn, is to the bit that of the steps one after the other, a crop by `resizer`.
///
///     const ps::one_pass augment{ps::random_affine{{.degrees = 15}},
///                                ps::random_crop{224} | ps::random_flip{},
///                                ps::color_jitter{{.brightness = 0.4}}, ps::to_chw{imagenet}};
///     auto more = photos | ps::map<floats>([augment](auto in, auto out, auto& random) {
///       augment(ps::as_pixels(ps::get<"image">(in)), ps::get<"x">(out), random);
///     });
///
/// The steps, each of which may be missing, in this order: `random_affine`; `center_crop` or
/// `random_crop`, with `random_flip` or without, or that alone; `color_jitter` and `grayscale`, any
/// number; `to_chw`. Another order does not compile. A change of contrast needs the mean of all
/// pixels, so that what follows it takes one pass more, over `out`. Allocates nothing. Called as
/// const from many threads at once.
template <class... Steps>
class one_pass {
  static_assert(detail::is_a_pass<Steps...>(),
                "one_pass: expected random_affine, a crop or random_flip, color_jitter and "
                "grayscale, to_chw, in this order");
  static constexpr bool makes_planes = (std::same_as<Steps, to_chw> || ...);

 public:
  /// Holds the steps.
  explicit one_pass(Steps... steps) : steps_(std::move(steps)...) {}

  /// Writes what the steps make of `in` to `out`, which does not overlap it. Throws
  /// std::invalid_argument unless `in` has three channels and `out` three and the size that comes
  /// of it, and what the crop throws, `picture_too_small`.
  void operator()(const const_pixels& in, const pixels& out, sample_generator& random) const
      requires(!makes_planes) {
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

  /// Writes what the steps make of `in` to the planes `out`. Throws std::invalid_argument unless
  /// `in` has three channels and `out` the extents that come of it, and what the crop throws.
  template <std::size_t C, std::size_t H, std::size_t W>
    requires(makes_planes)
  void operator()(const const_pixels& in, const tensor_view<float, C, H, W>& out,
                  sample_generator& random) const {
    auto drawn = draw(in, random);
    const image_size size = drawn.plan.size();
    to_chw::require_planes(size, 3, out);
    const std::size_t plane = size.width * size.height;
    // Bytes that wait for a mean have the last quarter of the floats' room. Floats overtake none of
    // them: those of pixel i end at 8 + 4 (i + 1) / n quarters at most, where its successors begin.
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
  static constexpr std::size_t most_changes = (detail::most_changes<Steps> + ...);
  using drawn_pass = detail::drawn_pass<most_changes>;

  [[nodiscard]] drawn_pass draw(const const_pixels& in, sample_generator& random) const {
    if (in.channels != 3) {
      throw std::invalid_argument("one_pass: expected a picture of 3 channels, found " +
                                  std::to_string(in.channels));
    }
    drawn_pass drawn{detail::checked_size("one_pass", in.size)};
    std::apply([&](const Steps&... steps) { (drawn.draw(steps, random), ...); }, steps_);
    return drawn;
  }

  // Makes all changes of colours: those before the first contrast while the picture is walked over.
  // `place(x, y)` is where a stripe waits for the mean; `finish(stripe, x, y)` takes the last one.
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
    const image_plan all{{0, 0, size}, size, {0, 0, size}};
    while (end < drawn.changes) {
      drawn.colors[end].set_mean(detail::mean_of(greys, size.width * size.height));
      greys = 0;
      first = end;
      end = next_mean(drawn, first + 1);
      detail::for_each_stripe(detail::copy_walk{waiting}, all, use);
    }
  }

  // The first change from `first` on that needs a mean, or how many changes there are.
  [[nodiscard]] static std::size_t next_mean(const drawn_pass& drawn, std::size_t first) noexcept {
    while (first < drawn.changes && !drawn.colors[first].needs_mean()) ++first;
    return first;
  }

  std::tuple<Steps...> steps_;
  detail::hue_table hues_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
