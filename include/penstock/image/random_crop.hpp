// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/image/detail/geometry_check.hpp>
#include <penstock/image/geometry.hpp>
#include <penstock/image/pixels.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A picture is smaller than what is cropped from it, its padding included.
class [[gnu::visibility("default")]] picture_too_small : public error {
 public:
  picture_too_small(const image_size& crop, std::size_t padding, const image_size& found)
      : error("random_crop: expected a picture of at least " + detail::to_text(crop) +
              " with a padding of " + std::to_string(padding) + " on each side, found " +
              detail::to_text(found) + ": pad more, or resize before"),
        found_(found) {}

  /// The picture's size.
  [[nodiscard]] const image_size& found() const noexcept { return found_; }

 private:
  image_size found_;
};

/// A crop at a random place, not resized, of a picture with `padding` rows and columns of zeros on
/// each side. torchvision: `RandomCrop`.
///
///     penstock::random_crop{32, 4} | penstock::random_flip{}   // what CIFAR is trained with
class random_crop {
 public:
  /// Of `size`. Throws std::invalid_argument unless its sides are of 1 to 2^24 pixels and longer
  /// than `padding`, so that each crop has a pixel of the picture.
  explicit random_crop(const image_size& size, std::size_t padding = 0)
      : size_(detail::checked_size("random_crop", size)), padding_(padding) {
    if (padding >= size.width || padding >= size.height) {
      throw std::invalid_argument("random_crop: expected a padding smaller than the crop of " +
                                  detail::to_text(size) + ", found " + std::to_string(padding));
    }
  }
  /// Of `side` x `side` pixels.
  explicit random_crop(std::size_t side, std::size_t padding = 0)
      : random_crop(image_size{side, side}, padding) {}

  /// The plan for a picture of `size`: two draws, top and left. Throws `picture_too_small` where the
  /// crop has no place, std::invalid_argument unless the sides are of 1 to 2^24 pixels.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator& random) const {
    detail::checked_size("random_crop", size);
    const image_size padded{size.width + 2 * padding_, size.height + 2 * padding_};
    if (padded.width < size_.width || padded.height < size_.height) {
      throw picture_too_small(size_, padding_, size);
    }
    const std::size_t top = uniform(random, std::size_t{0}, padded.height - size_.height);
    const std::size_t left = uniform(random, std::size_t{0}, padded.width - size_.width);
    const span columns = inside(left, size_.width, size.width);
    const span rows = inside(top, size_.height, size.height);
    image_plan made;
    made.crop = {columns.first, rows.first, {columns.count, rows.count}};
    made.scaled = made.crop.size;
    made.kept = {0, 0, made.crop.size};
    made.border = {columns.before, rows.before, size_.width - columns.before - columns.count,
                   size_.height - rows.before - rows.count};
    return made;
  }
  /// The size of the crop.
  [[nodiscard]] image_size size() const noexcept { return size_; }

 private:
  struct span {
    std::size_t before;  // zeros
    std::size_t first;   // of the picture's pixels
    std::size_t count;
  };

  // What of `length` pixels lies in a crop of `cropped` that begins at `at` of the padded ones.
  [[nodiscard]] span inside(std::size_t at, std::size_t cropped, std::size_t length) const {
    const std::size_t begin = (std::max)(at, padding_);
    const std::size_t end = (std::min)(at + cropped, padding_ + length);
    return {begin - at, begin - padding_, end - begin};
  }

  image_size size_;
  std::size_t padding_;
};

static_assert(image_geometry<random_crop>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
