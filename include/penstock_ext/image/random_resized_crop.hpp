// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/support/draw.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>
#include <penstock_ext/image/detail/geometry_check.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// From `low` to `high`.
struct crop_range {
  double low = 0;   ///< the least
  double high = 0;  ///< the most
};

/// From what `random_resized_crop` draws; by default as torchvision does.
struct random_resized_crop_options {
  /// The crop's share of the picture's area.
  crop_range scale = {.low = 0.08, .high = 1};
  /// Its width over its height.
  crop_range ratio = {.low = 3.0 / 4, .high = 4.0 / 3};
};

/// A crop of random area, shape and place, resized to one size: torchvision's `RandomResizedCrop`,
/// with its ten tries, its order of draws and its rounding.
///
///     penstock::random_resized_crop{224}                     // 8 % to 100 % of the area
///     penstock::random_resized_crop{{.width = 320, .height = 240},
///                                   {.scale = {.low = 0.25, .high = 1}}}
///
/// A try draws the crop's share of the area uniformly from `scale`, then its width over its height
/// from `ratio`, uniformly in the logarithm; a crop that fits is placed by two draws, top and left.
/// When ten tries have not fitted, the largest crop in the middle is taken whose shape is as near
/// to that of the picture as `ratio` allows. The draws are doubles, while torchvision's are floats,
/// and e to their power and logarithms are computed here: the plans are the same on every machine.
class random_resized_crop {
 public:
  /// To `size`. Throws std::invalid_argument unless its sides are of 1 to 2^24 pixels,
  /// 0 < low <= high < infinity in `scale` and 1e-4 <= low <= high <= 1e4 in `ratio`.
  explicit random_resized_crop(const image_size& size,
                               const random_resized_crop_options& options = {})
      : size_(detail::checked_size("random_resized_crop", size)),
        scale_(options.scale),
        ratio_(options.ratio) {
    if (!(scale_.low > 0 && scale_.low <= scale_.high && std::isfinite(scale_.high))) {
      refuse("a scale of 0 < low <= high", scale_);
    }
    if (!(ratio_.low >= 1e-4 && ratio_.low <= ratio_.high && ratio_.high <= 1e4)) {
      refuse("a ratio of 1e-4 <= low <= high <= 1e4", ratio_);
    }
    log_ratio_ = {detail::exact_log(ratio_.low), detail::exact_log(ratio_.high)};
  }
  /// To `side` x `side` pixels.
  explicit random_resized_crop(std::size_t side, const random_resized_crop_options& options = {})
      : random_resized_crop(image_size{side, side}, options) {}

  /// The plan for a picture of `size`. Throws std::invalid_argument unless its sides are of 1 to
  /// 2^24 pixels.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator& random) const {
    detail::checked_size("random_resized_crop", size);
    return {draw(size, random), size_, {0, 0, size_}};
  }
  /// What every crop is resized to.
  [[nodiscard]] image_size size() const noexcept { return size_; }

 private:
  static constexpr int tries = 10;

  [[noreturn]] static void refuse(const char* expected, const crop_range& found) {
    throw std::invalid_argument(std::string{"random_resized_crop: expected "} + expected +
                                ", found low = " + detail::to_text(found.low) +
                                ", high = " + detail::to_text(found.high));
  }

  [[nodiscard]] image_box draw(const image_size& size, sample_generator& random) const {
    const auto width = static_cast<double>(size.width);
    const auto height = static_cast<double>(size.height);
    for (int i = 0; i < tries; ++i) {
      const double area = width * height * uniform(random, scale_.low, scale_.high);
      const double ratio = detail::exact_exp(uniform(random, log_ratio_.low, log_ratio_.high));
      const double w = std::nearbyint(std::sqrt(area * ratio));
      const double h = std::nearbyint(std::sqrt(area / ratio));
      if (w >= 1 && w <= width && h >= 1 && h <= height) {
        const image_size crop{static_cast<std::size_t>(w), static_cast<std::size_t>(h)};
        const std::size_t top = uniform(random, std::size_t{0}, size.height - crop.height);
        const std::size_t left = uniform(random, std::size_t{0}, size.width - crop.width);
        return {left, top, crop};
      }
    }
    return in_the_middle(size);
  }

  [[nodiscard]] image_box in_the_middle(const image_size& size) const {
    const auto width = static_cast<double>(size.width);
    const auto height = static_cast<double>(size.height);
    const double shape = width / height;
    const auto pixels_of = [](double side, std::size_t most) {
      return (std::min)((std::max)(static_cast<std::size_t>(std::nearbyint(side)), std::size_t{1}),
                        most);
    };
    image_size crop = size;
    if (shape < ratio_.low) {
      crop.height = pixels_of(width / ratio_.low, size.height);
    } else if (shape > ratio_.high) {
      crop.width = pixels_of(height * ratio_.high, size.width);
    }
    return {(size.width - crop.width) / 2, (size.height - crop.height) / 2, crop};
  }

  image_size size_;
  crop_range scale_;
  crop_range ratio_;
  crop_range log_ratio_;
};

static_assert(image_geometry<random_resized_crop>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
