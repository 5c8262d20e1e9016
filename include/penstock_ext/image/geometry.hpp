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

/// Maximum side length of an image. Pillow stores sizes as floats, which represent all integers up
/// to this value exactly.
inline constexpr std::size_t max_side = std::size_t{1} << 24;

/// Returns true if both sides are 1 to `max_side` pixels long.
inline bool has_pixels(const image_size& size) noexcept {
  return size.width - 1 < max_side && size.height - 1 < max_side;
}

/// Returns `size`, an image size or the result size of the geometry `name`. Throws
/// std::invalid_argument unless both sides are 1 to 2^24 pixels long.
inline const image_size& checked_size(const char* name, const image_size& size) {
  if (!has_pixels(size)) {
    throw std::invalid_argument(std::string{name} + ": expected sides of 1 to 2^24 pixels, found " +
                                to_text(size));
  }
  return size;
}

}  // namespace detail

/// Zero padding around the kept part of a plan.
struct image_border {
  std::size_t left = 0;    ///< number of columns on the left
  std::size_t top = 0;     ///< number of rows at the top
  std::size_t right = 0;   ///< number of columns on the right
  std::size_t bottom = 0;  ///< number of rows at the bottom

  friend constexpr bool operator==(const image_border&, const image_border&) = default;
};

/// The processing steps from an image to a sample, in this order: crop; resize to `scaled`; keep
/// the part `kept`; add `border` around it; flip. The plan is drawn before decoding, so that only
/// the crop is decoded. The sample size is the size of `kept` plus `border`.
struct image_plan {
  image_box crop;         ///< part of the image, in image pixels
  image_size scaled;      ///< size of the resized crop
  image_box kept;         ///< part of the resized crop that is computed
  bool mirrored = false;  ///< flips horizontally at the end, including the border
  image_border border{};  ///< zero padding; most plans have none

  /// Returns the sample size.
  [[nodiscard]] constexpr image_size size() const noexcept {
    return {border.left + kept.size.width + border.right,
            border.top + kept.size.height + border.bottom};
  }

  friend constexpr bool operator==(const image_plan&, const image_plan&) = default;
};

namespace detail {

/// Returns a plan that crops without resizing, and adds `border` around the crop.
[[nodiscard]] constexpr image_plan unresized(const image_box& crop,
                                             const image_border& border = {}) noexcept {
  return {crop, crop.size, {0, 0, crop.size}, false, border};
}

}  // namespace detail

/// A geometry, which chooses the crop and the size of an image. `plan(size, random)` draws a plan
/// for an image of `size` from the sample's generator. `size()` returns the size of all samples.
/// Several threads call both members concurrently through a const reference. The consumer receives
/// exceptions with the affected batch.
template <class G>
concept image_geometry =
    requires(const G& geometry, const image_size& size, sample_generator& random) {
      { geometry.plan(size, random) } -> std::same_as<image_plan>;
      { geometry.size() } -> std::convertible_to<image_size>;
    };

namespace detail {

/// A geometry that flips images horizontally with probability `p`.
template <class G>
class flipped_geometry {
 public:
  /// Flips the images of `geometry`.
  flipped_geometry(G geometry, double p) : geometry_(std::move(geometry)), p_(p) {}

  /// Returns the plan of the underlying geometry. Makes one more draw, which decides if the image
  /// is flipped.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator& random) const {
    image_plan drawn = geometry_.plan(size, random);
    if (bernoulli(random, p_)) drawn.mirrored = !drawn.mirrored;
    return drawn;
  }
  [[nodiscard]] image_size size() const { return geometry_.size(); }

 private:
  G geometry_;
  double p_;
};

}  // namespace detail

/// Flips an image horizontally with probability `p`, as the last step of a geometry. For example,
/// `random_resized_crop{224} | random_flip{}` draws the crop, and then two more random words that
/// decide if the crop is flipped. Equals torchvision's `RandomHorizontalFlip`.
class random_flip {
 public:
  /// Throws std::invalid_argument unless 0 <= p <= 1.
  explicit random_flip(double p = 0.5) : p_(p) {
    if (!(p >= 0 && p <= 1)) {
      throw std::invalid_argument("random_flip: expected 0 <= p <= 1, found p = " +
                                  detail::to_text(p));
    }
  }

  /// Returns a geometry that randomly flips the images of `geometry`.
  template <image_geometry G>
  [[nodiscard]] friend detail::flipped_geometry<G> operator|(G geometry, const random_flip& flip) {
    return {std::move(geometry), flip.p_};
  }

 private:
  double p_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
