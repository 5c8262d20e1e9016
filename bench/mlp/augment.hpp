// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include <penstock/core/batch.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/files/idx_dataset.hpp>

namespace mlp {

/// A random affine warp of a 28 x 28 image about its center: rotation by up to 15 degrees, scale
/// 0.9 to 1.1, and shift by up to 2 pixels in each direction. The class is a function for
/// `penstock::map`.
///
/// Every pixel is the mean of seven points of the warped image, its center and a hexagon around it,
/// each interpolated bilinearly. Thin strokes therefore stay smooth. Loading a batch costs about as
/// much as a training step, which is the case with the largest benefit from overlap. All
/// computations use integers with 16 fractional bits.
struct augment {
  using record = penstock::digit_record;

  void operator()(penstock::const_sample<record> in, penstock::sample<record> out,
                  penstock::sample_generator& random) const {
    penstock::get<"label">(out) = penstock::get<"label">(in);
    warp(penstock::get<"image">(in).data(), penstock::get<"image">(out).data(), draw(random));
  }

  /// A mapping from an output point to its source: (u, v) = (ux * x + uy * y + u0, vx * x + vy * y
  /// + v0). One pixel is 65536.
  struct affine {
    std::int32_t ux, uy, u0, vx, vy, v0;
  };

  [[nodiscard]] static affine draw(penstock::sample_generator& random) {
    constexpr float limit = 0.2617994F;  // 15 degrees in radians
    const float angle = penstock::uniform(random, -limit, limit);
    const float shrink = 1.0F / penstock::uniform(random, 0.9F, 1.1F);
    const float dx = penstock::uniform(random, -2.0F, 2.0F);
    const float dy = penstock::uniform(random, -2.0F, 2.0F);
    const float square = angle * angle;  // Taylor series, exact to 1e-5 of a pixel at 15 degrees
    const float sine = angle * (1.0F - square / 6.0F * (1.0F - square / 20.0F)) * shrink;
    const float cosine = (1.0F - square / 2.0F * (1.0F - square / 12.0F)) * shrink;
    constexpr float centre = static_cast<float>(side - 1) / 2.0F;
    const float x0 = centre + dx;
    const float y0 = centre + dy;
    return {fixed(cosine), fixed(sine),   fixed(centre - cosine * x0 - sine * y0),
            fixed(-sine),  fixed(cosine), fixed(centre + sine * x0 - cosine * y0)};
  }

  static void warp(const std::uint8_t* in, std::uint8_t* out, const affine& map) {
    const cells from{in};
    for (std::int32_t y = 0; y < side; ++y) {
      std::uint32_t sums[width] = {};
      for (const offset& point : points) {
        const std::int32_t u0 = map.u0 + map.uy * y + (map.ux * point.x + map.uy * point.y) / 256;
        const std::int32_t v0 = map.v0 + map.vy * y + (map.vx * point.x + map.vy * point.y) / 256;
        for (std::int32_t x = 0; x < width; ++x) {
          sums[x] += from.at(map.ux * x + u0, map.vx * x + v0);
        }
      }
      std::uint8_t line[width];
      constexpr std::uint32_t whole = std::size(points) << 14;
      for (std::int32_t x = 0; x < width; ++x) {
        line[x] = static_cast<std::uint8_t>((sums[x] + whole / 2) / whole);
      }
      std::memcpy(out + y * side, line, side);
    }
  }

 private:
  static constexpr std::int32_t side = 28;
  static constexpr std::int32_t width = 32;  // length of a row, a multiple of the vector width
  static constexpr std::int32_t one = 1 << 16;

  struct offset {
    std::int32_t x, y;  // in units of 1/256 pixel
  };
  static constexpr offset points[] = {{0, 0},   {96, 0},    {48, 83}, {-48, 83},
                                      {-96, 0}, {-48, -83}, {48, -83}};

  static std::int32_t fixed(float value) { return static_cast<std::int32_t>(value * one); }

  /// The image with a background border, stored as overlapping 2x2 neighborhoods. Each neighborhood
  /// is one word whose bytes are its four pixel values. Therefore, interpolating at a point needs a
  /// single load, and compilers can use gather instructions.
  class cells {
   public:
    explicit cells(const std::uint8_t* image) {
      std::uint8_t framed[(side + 3) * stride + 1] = {};
      for (std::int32_t y = 0; y < side; ++y) {
        std::memcpy(framed + (y + 1) * stride + 1, image + y * side, side);
      }
      for (std::int32_t i = 0; i < (side + 2) * stride; ++i) {
        const std::uint32_t upper = framed[i] | static_cast<std::uint32_t>(framed[i + 1]) << 8U;
        const std::uint32_t lower =
            framed[i + stride] | static_cast<std::uint32_t>(framed[i + stride + 1]) << 8U;
        corners_[i] = upper | lower << 16U;
      }
    }

    /// Returns the interpolated pixel value at (u, v), times 2^14.
    [[nodiscard]] std::uint32_t at(std::int32_t u, std::int32_t v) const {
      u = std::min(std::max(u, -one), side * one) + one;
      v = std::min(std::max(v, -one), side * one) + one;
      const std::uint32_t c = corners_[(v >> 16) * stride + (u >> 16)];
      const std::uint32_t right = static_cast<std::uint32_t>(u) % one >> 9U;  // in units of 1/128
      const std::uint32_t below = static_cast<std::uint32_t>(v) % one >> 9U;
      // Computes two products in one word: the even bytes are the left corners, and the odd bytes
      // are the right corners.
      const std::uint32_t row = (c & 0x00ff00ffU) * (128 - right) + (c >> 8U & 0x00ff00ffU) * right;
      return (row & 0xffffU) * (128 - below) + (row >> 16U) * below;
    }

   private:
    static constexpr std::int32_t stride = width;
    std::uint32_t corners_[(side + 2) * stride];
  };
};

}  // namespace mlp
