// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock/order/random.hpp>
#include <penstock_ext/image/pixels.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The maximum length of a side of an image. Pillow's sizes are floats, and a float represents
/// every integer up to this length.
inline constexpr std::size_t max_side = std::size_t{1} << 24;

/// Returns true if both sides are 1 to `max_side` pixels long.
inline bool has_pixels(const image_size& size) noexcept {
  return size.width - 1 < max_side && size.height - 1 < max_side;
}

/// Returns `size`, the size of the image or of the result of the geometry `name`. Throws
/// std::invalid_argument unless both sides are 1 to 2^24 pixels long.
inline const image_size& checked_size(const char* name, const image_size& size) {
  if (!has_pixels(size)) {
    throw std::invalid_argument(std::string{name} + ": expected sides of 1 to 2^24 pixels, found " +
                                to_text(size));
  }
  return size;
}

}  // namespace detail

/// Rows and columns of zeros around the kept part of a plan, which crops with padding have.
struct image_border {
  std::size_t left = 0;    ///< columns before the first column
  std::size_t top = 0;     ///< rows above the first row
  std::size_t right = 0;   ///< columns after the last column
  std::size_t bottom = 0;  ///< rows below the last row

  friend constexpr bool operator==(const image_border&, const image_border&) = default;
};

/// The part of an image that a sample takes, and its changes in this order: crop; resize to
/// `scaled`; take the part `kept`; add `border` around it; mirror. The plan is drawn before the
/// image is decoded, so that only the crop is decoded. The size of the sample is the size of `kept`
/// with its `border`.
struct image_plan {
  image_box crop;         ///< part of the image, in its pixels
  image_size scaled;      ///< size of the resized crop
  image_box kept;         ///< part of the resized crop that is computed
  bool mirrored = false;  ///< swaps left and right at the end, including the border
  image_border border{};  ///< zeros around `kept`; most plans have no border

  /// Returns the width and height of the sample.
  [[nodiscard]] constexpr image_size size() const noexcept {
    return {border.left + kept.size.width + border.right,
            border.top + kept.size.height + border.bottom};
  }

  friend constexpr bool operator==(const image_plan&, const image_plan&) = default;
};

namespace detail {

/// Returns a plan that takes `crop` without resizing, and adds `border` around it.
[[nodiscard]] constexpr image_plan unresized(const image_box& crop,
                                             const image_border& border = {}) noexcept {
  return {crop, crop.size, {0, 0, crop.size}, false, border};
}

}  // namespace detail

/// Chooses the crop and the size of an image. `plan(size, random)` returns a plan for an image of
/// `size`, drawn from the sample's generator. `size()` returns the size of every sample. Many
/// threads call both at once, as const. Their exceptions reach the consumer with the batch.
template <class G>
concept image_geometry =
    requires(const G& geometry, const image_size& size, sample_generator& random) {
      { geometry.plan(size, random) } -> std::same_as<image_plan>;
      { geometry.size() } -> std::convertible_to<image_size>;
    };

namespace detail {

/// A geometry that mirrors images with probability `p`.
template <class G>
class flipped_geometry {
 public:
  /// Mirrors the plans of `geometry`.
  flipped_geometry(G geometry, double p) : geometry_(std::move(geometry)), p_(p) {}

  /// Returns the geometry's plan. Draws once more, to decide if the image is mirrored.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator& random) const {
    image_plan drawn = geometry_.plan(size, random);
    if (bernoulli(random, p_)) drawn.mirrored = !drawn.mirrored;
    return drawn;
  }
  /// Returns the size of the geometry.
  [[nodiscard]] image_size size() const { return geometry_.size(); }

 private:
  G geometry_;
  double p_;
};

}  // namespace detail

/// Mirrors an image with probability `p`, 1/2 by default, as the last step of a geometry.
/// `random_resized_crop{224} | random_flip{}` is a geometry that draws the crop, and then draws two
/// more random words to decide if the crop is mirrored. Equal to torchvision's
/// `RandomHorizontalFlip`.
class random_flip {
 public:
  /// Throws std::invalid_argument unless 0 <= p <= 1.
  explicit random_flip(double p = 0.5) : p_(p) {
    if (!(p >= 0 && p <= 1)) {
      throw std::invalid_argument("random_flip: expected 0 <= p <= 1, found p = " +
                                  detail::to_text(p));
    }
  }

  /// Returns a geometry that mirrors the images of `geometry` at random.
  template <image_geometry G>
  [[nodiscard]] friend detail::flipped_geometry<G> operator|(G geometry, const random_flip& flip) {
    return {std::move(geometry), flip.p_};
  }

 private:
  double p_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
