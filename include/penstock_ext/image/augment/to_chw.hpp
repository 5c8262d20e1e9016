// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <penstock/core/tensor_view.hpp>
#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Mean and standard deviation of each channel, relative to a value range from 0 to 1. ImageNet
/// uses {.mean = {0.485f, 0.456f, 0.406f}, .stddev = {0.229f, 0.224f, 0.225f}}.
struct channel_scale {
  std::array<float, 3> mean{0, 0, 0};    ///< red, green and blue
  std::array<float, 3> stddev{1, 1, 1};  ///< red, green and blue
};

/// Converts an 8-bit RGB image (H x W x C) to float planes (C x H x W): (value / 255 - mean) /
/// stddev. The result is bit-identical to torchvision's `ToTensor` and `Normalize` on a CPU. Suits
/// models that read host memory. For a GPU, `on_device` converts on the GPU and transfers a quarter
/// of the bytes.
///
///     using out = penstock::record<penstock::field<"x", float, 3, 224, 224>>;
///     auto floats = photos | penstock::map<out>([planes = penstock::to_chw{}](auto in, auto x) {
///       planes(penstock::as_pixels(penstock::get<"image">(in)), penstock::get<"x">(x));
///     });
///
/// Looks up each value in a table of 3 x 256 floats. Thread-safe.
class to_chw {
 public:
  /// Throws std::invalid_argument unless all members are finite and no `stddev` is 0.
  explicit to_chw(const channel_scale& scale = {}) {
    for (std::size_t c = 0; c < 3; ++c) {
      if (!std::isfinite(scale.mean[c]) || !std::isfinite(scale.stddev[c]) ||
          scale.stddev[c] == 0) {
        throw std::invalid_argument(
            "to_chw: expected finite means, and deviations that are not 0, found " +
            detail::to_text(scale.mean[c]) + " and " + detail::to_text(scale.stddev[c]) +
            " for channel " + std::to_string(c));
      }
      for (std::size_t value = 0; value < 256; ++value) {
        table_[c][value] = (static_cast<float>(value) / 255.0f - scale.mean[c]) / scale.stddev[c];
      }
    }
  }

  /// Writes the planes of `image` to `out`, whose extents must be 3, height and width. Throws
  /// std::invalid_argument for other extents, or if the image does not have three channels.
  template <std::size_t C, std::size_t H, std::size_t W>
  void operator()(const const_pixels& image, const tensor_view<float, C, H, W>& out) const {
    const image_size& size = image.size;
    require_planes(size, image.channels, out);
    for (std::size_t y = 0; y < size.height; ++y) {
      write(image.row(y), size.width, out.data() + y * size.width, size.height * size.width);
    }
  }

  /// Converts `count` pixels at `rgb`. Writes red to `red`, green to `red + plane`, and blue to
  /// `red + 2 * plane`.
  void write(const std::uint8_t* rgb, std::size_t count, float* red,
             std::size_t plane) const noexcept {
    float* const green = red + plane;
    float* const blue = green + plane;
    for (std::size_t x = 0; x < count; ++x, rgb += 3) {
      red[x] = table_[0][rgb[0]];
      green[x] = table_[1][rgb[1]];
      blue[x] = table_[2][rgb[2]];
    }
  }

  /// Throws std::invalid_argument unless `channels` is 3 and `out` has the extents (3, size.height,
  /// size.width).
  template <std::size_t C, std::size_t H, std::size_t W>
  static void require_planes(const image_size& size, std::size_t channels,
                             const tensor_view<float, C, H, W>& out) {
    if (channels != 3 || out.extent(0) != 3 || out.extent(1) != size.height ||
        out.extent(2) != size.width) {
      throw std::invalid_argument(
          "to_chw: expected 3 x " + std::to_string(size.height) + " x " +
          std::to_string(size.width) + " floats for an image of " + std::to_string(channels) +
          " channels, found " + std::to_string(out.extent(0)) + " x " +
          std::to_string(out.extent(1)) + " x " + std::to_string(out.extent(2)));
    }
  }

 private:
  std::array<std::array<float, 256>, 3> table_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
