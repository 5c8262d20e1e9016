// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/image/detail/exact_math.hpp>
#include <penstock_ext/image/geometry.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A closed range of values.
struct crop_range {
  double low = 0;   ///< the smallest value
  double high = 0;  ///< the largest value
};

/// Options of `random_resized_crop`. The defaults are torchvision's.
struct random_resized_crop_options {
  /// Crop area as a fraction of the image area.
  crop_range scale = {.low = 0.08, .high = 1};
  /// Ratio of crop width to crop height.
  crop_range ratio = {.low = 3.0 / 4, .high = 4.0 / 3};
};

/// A crop of random area, aspect ratio and position, resized to a fixed size. Has the same ten
/// tries, draw order and rounding as torchvision's `RandomResizedCrop`.
///
///     penstock::random_resized_crop{224}                     // 8 % to 100 % of the area
///     penstock::random_resized_crop{{.width = 320, .height = 240},
///                                   {.scale = {.low = 0.25, .high = 1}}}
///
/// Each try draws the area fraction uniformly from `scale`, and the aspect ratio log-uniformly from
/// `ratio`. If the crop fits, two more draws select its top and left position. If ten tries do not
/// fit, the result is the largest central crop whose aspect ratio is as close to the image's as
/// `ratio` allows. Draws are doubles, whereas torchvision uses floats. The library has its own
/// exponential and logarithm functions, so the plans are the same on every machine.
class random_resized_crop {
 public:
  /// Resizes crops to `size`. Throws std::invalid_argument unless its sides are 1 to 2^24 pixels
  /// long, 0 < low <= high < infinity in `scale` and 1e-4 <= low <= high <= 1e4 in `ratio`.
  explicit random_resized_crop(const image_size& size,
                               const random_resized_crop_options& options = {})
      : size_(detail::checked_size("random_resized_crop", size)),
        scale_(options.scale),
        ratio_(options.ratio) {
    if (!(scale_.low > 0 && scale_.low <= scale_.high && std::isfinite(scale_.high))) {
      reject("a scale of 0 < low <= high", scale_);
    }
    if (!(ratio_.low >= 1e-4 && ratio_.low <= ratio_.high && ratio_.high <= 1e4)) {
      reject("a ratio of 1e-4 <= low <= high <= 1e4", ratio_);
    }
    log_ratio_ = {detail::exact_log(ratio_.low), detail::exact_log(ratio_.high)};
  }
  /// Resizes crops to `side` x `side` pixels.
  explicit random_resized_crop(std::size_t side, const random_resized_crop_options& options = {})
      : random_resized_crop(image_size{side, side}, options) {}

  /// Returns the plan for an image of `size`. Throws std::invalid_argument unless its sides are 1
  /// to 2^24 pixels long.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator& random) const {
    detail::checked_size("random_resized_crop", size);
    return {draw(size, random), size_, {0, 0, size_}};
  }
  /// Returns the size of every resized crop.
  [[nodiscard]] image_size size() const noexcept { return size_; }

 private:
  static constexpr int tries = 10;

  [[noreturn]] static void reject(const char* expected, const crop_range& found) {
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
    const auto pixels_of = [](double side, std::size_t max) {
      return std::clamp(static_cast<std::size_t>(std::nearbyint(side)), std::size_t{1}, max);
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

/// A geometry that resizes the whole image to a fixed size, ignoring the aspect ratio.
class whole {
 public:
  /// Resizes images to `size`. Throws std::invalid_argument unless its sides are 1 to 2^24 pixels
  /// long.
  explicit whole(const image_size& size) : size_(detail::checked_size("whole", size)) {}
  /// Resizes images to `side` x `side` pixels.
  explicit whole(std::size_t side) : whole(image_size{side, side}) {}

  /// Returns the plan for an image of `size`. Makes no random draws. Throws std::invalid_argument
  /// unless its sides are 1 to 2^24 pixels long.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator&) const {
    return {{0, 0, detail::checked_size("whole", size)}, size_, {0, 0, size_}};
  }
  /// Returns the size of resized images.
  [[nodiscard]] image_size size() const noexcept { return size_; }

 private:
  image_size size_;
};

/// A central crop without resizing. A smaller image is surrounded by zeros. Rounds positions like
/// torchvision's `CenterCrop`.
class center_crop {
 public:
  /// Crops to `size`. Throws std::invalid_argument unless its sides are 1 to 2^24 pixels long.
  explicit center_crop(const image_size& size) : size_(detail::checked_size("center_crop", size)) {}
  /// Crops to `side` x `side` pixels.
  explicit center_crop(std::size_t side) : center_crop(image_size{side, side}) {}

  /// Returns the plan for an image of `size`. Makes no random draws. Throws std::invalid_argument
  /// unless its sides are 1 to 2^24 pixels long.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator&) const {
    detail::checked_size("center_crop", size);
    const image_size crop{(std::min)(size.width, size_.width),
                          (std::min)(size.height, size_.height)};
    const image_size missing{size_.width - crop.width, size_.height - crop.height};
    return detail::unresized(
        {half_even(size.width - crop.width), half_even(size.height - crop.height), crop},
        {missing.width / 2, missing.height / 2, (missing.width + 1) / 2, (missing.height + 1) / 2});
  }
  /// Returns the crop size.
  [[nodiscard]] image_size size() const noexcept { return size_; }

 private:
  // Returns half of `value`, rounded half to even.
  static std::size_t half_even(std::size_t value) noexcept {
    return value / 2 + (value % 4 == 3 ? 1 : 0);
  }

  image_size size_;
};

/// Thrown if an image with its padding is smaller than the crop.
class [[gnu::visibility("default")]] image_too_small : public error {
 public:
  /// `crop` is the crop size, `padding` its padding on each side, and `found` the image size.
  image_too_small(const image_size& crop, std::size_t padding, const image_size& found)
      : error("random_crop: expected an image of at least " + detail::to_text(crop) +
              " with a padding of " + std::to_string(padding) + " on each side, found " +
              detail::to_text(found) + ": pad more, or resize before"),
        found_(found) {}

  /// Copies `of` and adds the blob key to the message.
  image_too_small(const std::string& key, const image_too_small& of)
      : error(key + ": " + of.what()), found_(of.found_) {}

  /// Returns the image size.
  [[nodiscard]] const image_size& found() const noexcept { return found_; }

 private:
  image_size found_;
};

/// Options of `random_crop`.
struct random_crop_options {
  /// Number of zero rows and columns to add on each side of the image.
  std::size_t padding = 0;
};

/// A fixed-size crop at a random position, with optional zero padding. Equals torchvision's
/// `RandomCrop`.
///
///     // The usual augmentation for CIFAR
///     penstock::random_crop{32, {.padding = 4}} | penstock::random_flip{}
class random_crop {
 public:
  /// Crops to `size`. Throws std::invalid_argument unless its sides are 1 to 2^24 pixels long and
  /// longer than `padding`. Each crop therefore contains at least one image pixel.
  explicit random_crop(const image_size& size, const random_crop_options& options = {})
      : size_(detail::checked_size("random_crop", size)), padding_(options.padding) {
    if (padding_ >= size.width || padding_ >= size.height) {
      throw std::invalid_argument("random_crop: expected a padding smaller than the crop of " +
                                  detail::to_text(size) + ", found " + std::to_string(padding_));
    }
  }
  /// Crops to `side` x `side` pixels.
  explicit random_crop(std::size_t side, const random_crop_options& options = {})
      : random_crop(image_size{side, side}, options) {}

  /// Returns the plan for an image of `size`. Draws the top and then the left position. Throws
  /// `image_too_small` if the crop does not fit, and std::invalid_argument unless the sides are 1
  /// to 2^24 pixels long.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator& random) const {
    detail::checked_size("random_crop", size);
    const image_size padded{size.width + 2 * padding_, size.height + 2 * padding_};
    if (padded.width < size_.width || padded.height < size_.height) {
      throw image_too_small(size_, padding_, size);
    }
    const std::size_t top = uniform(random, std::size_t{0}, padded.height - size_.height);
    const std::size_t left = uniform(random, std::size_t{0}, padded.width - size_.width);
    const span columns = inside(left, size_.width, size.width);
    const span rows = inside(top, size_.height, size.height);
    return detail::unresized({columns.first, rows.first, {columns.count, rows.count}},
                             {columns.before, rows.before, columns.after, rows.after});
  }
  /// Returns the crop size.
  [[nodiscard]] image_size size() const noexcept { return size_; }

 private:
  struct span {
    std::size_t before;  // number of zeros before the image
    std::size_t first;   // first image pixel
    std::size_t count;
    std::size_t after;  // number of zeros after the image
  };

  // Returns the part of an axis of `length` pixels that lies inside a crop of `cropped` pixels.
  // `at` is the first crop pixel, counted from the start of the padding.
  [[nodiscard]] span inside(std::size_t at, std::size_t cropped, std::size_t length) const {
    const std::size_t begin = (std::max)(at, padding_);
    const std::size_t end = (std::min)(at + cropped, padding_ + length);
    return {begin - at, begin - padding_, end - begin, at + cropped - end};
  }

  image_size size_;
  std::size_t padding_;
};

namespace detail {

/// A geometry that resizes the shorter side of an image to `shorter` pixels and then crops.
template <class Crop>
class resized_crop {
 public:
  /// `crop` must be a geometry that does not resize.
  resized_crop(std::size_t shorter, Crop crop) : shorter_(shorter), crop_(std::move(crop)) {
    if (shorter - 1 >= max_side) {
      throw std::invalid_argument("resize_shorter: expected 1 to 2^24 pixels, found " +
                                  std::to_string(shorter));
    }
  }

  /// Returns the plan for an image of `size`. The plan computes only the cropped part of the
  /// resized image. Throws std::invalid_argument unless all sides are 1 to 2^24 pixels long.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator& random) const {
    checked_size("resize_shorter", size);
    const std::size_t shorter = (std::min)(size.width, size.height);
    const image_size scaled{shorter_ * size.width / shorter, shorter_ * size.height / shorter};
    image_plan made = crop_.plan(checked_size("resize_shorter", scaled), random);
    made.kept = made.crop;
    made.crop = {0, 0, size};
    made.scaled = scaled;
    return made;
  }
  /// Returns the crop size.
  [[nodiscard]] image_size size() const { return crop_.size(); }

 private:
  std::size_t shorter_;
  Crop crop_;
};

}  // namespace detail

/// Resizes an image before it is cropped. For example, the usual validation geometry
/// `resize_shorter{256} | center_crop{224}` resizes the shorter side to 256 pixels. The longer side
/// is scaled proportionally and truncated to an integer, as in torchvision's `Resize(256)`.
/// Computes only pixels inside the crop.
class resize_shorter {
 public:
  /// Resizes the shorter side to `shorter` pixels. Combining it with a crop throws
  /// std::invalid_argument unless `shorter` is 1 to 2^24.
  explicit resize_shorter(std::size_t shorter) noexcept : shorter_(shorter) {}

  /// Returns a geometry that resizes and then crops. `Crop` is `center_crop` or `random_crop`.
  template <image_geometry Crop>
  [[nodiscard]] friend detail::resized_crop<Crop> operator|(const resize_shorter& resize,
                                                            Crop crop) {
    return {resize.shorter_, std::move(crop)};
  }

 private:
  std::size_t shorter_;
};

static_assert(image_geometry<whole>);
static_assert(image_geometry<center_crop>);
static_assert(image_geometry<random_crop>);
static_assert(image_geometry<detail::resized_crop<center_crop>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
