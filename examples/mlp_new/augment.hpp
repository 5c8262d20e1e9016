// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <penstock/core/batch.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/files/idx_dataset.hpp>

namespace example {

/// Turns a 28 x 28 picture by up to 15 degrees and shifts it by up to two pixels each way, anew for
/// each sample in each epoch: a function for `penstock::map`. Its random bits come from the loader,
/// and depend on seed, epoch and sample alone; so a serial loop gets the same pictures.
struct augment {
  using record = penstock::digit_record;
  static constexpr int side = 28;

  void operator()(penstock::const_sample<record> in, penstock::sample<record> out,
                  penstock::sample_generator& random) const {
    penstock::get<"label">(out) = penstock::get<"label">(in);
    const float angle = penstock::uniform(random, -0.26F, 0.26F);
    const float dx = penstock::uniform(random, -2.0F, 2.0F);
    const float dy = penstock::uniform(random, -2.0F, 2.0F);
    turn(penstock::get<"image">(in).data(), penstock::get<"image">(out).data(), angle, dx, dy);
  }

  /// Each pixel is interpolated bilinearly at the place where it comes from.
  static void turn(const std::uint8_t* in, std::uint8_t* out, float angle, float dx, float dy) {
    // A frame of background, wide enough for all places that are asked for after clamping.
    constexpr int margin = 2;
    constexpr int stride = side + 2 * margin;
    std::array<std::uint8_t, stride * stride> framed{};
    for (int y = 0; y < side; ++y) {
      std::memcpy(&framed[static_cast<std::size_t>((y + margin) * stride + margin)], in + y * side,
                  side);
    }
    const float sine = std::sin(angle);
    const float cosine = std::cos(angle);
    constexpr float centre = (side - 1) / 2.0F;
    const auto clamped = [](float place) {
      constexpr float last = side + margin - 1.001F;
      return (place < -margin ? -margin : place > last ? last : place) + margin;
    };
    for (int y = 0; y < side; ++y) {
      const float v = static_cast<float>(y) - centre - dy;
      for (int x = 0; x < side; ++x) {
        const float u = static_cast<float>(x) - centre - dx;
        const float from_x = clamped(centre + cosine * u + sine * v);
        const float from_y = clamped(centre - sine * u + cosine * v);
        const auto left = static_cast<int>(from_x);
        const auto top = static_cast<int>(from_y);
        const float right_share = from_x - static_cast<float>(left);
        const float below_share = from_y - static_cast<float>(top);
        const auto at = [&](int place) {
          return static_cast<float>(framed[static_cast<std::size_t>(place)]);
        };
        const int corner = top * stride + left;
        const float above = at(corner) + right_share * (at(corner + 1) - at(corner));
        const float below =
            at(corner + stride) + right_share * (at(corner + stride + 1) - at(corner + stride));
        out[y * side + x] = static_cast<std::uint8_t>(above + below_share * (below - above) + 0.5F);
      }
    }
  }
};

}  // namespace example
