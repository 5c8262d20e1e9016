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

/// The longest side of a picture: what a float counts without a gap, as Pillow's sizes are floats.
inline constexpr std::size_t longest_side = std::size_t{1} << 24;

/// Whether both sides are of 1 to `longest_side` pixels.
inline bool has_pixels(const image_size& size) noexcept {
  return size.width - 1 < longest_side && size.height - 1 < longest_side;
}

/// Returns `size`, of the picture or of the result of the geometry `name`. Throws
/// std::invalid_argument unless both sides are of 1 to 2^24 pixels.
inline const image_size& checked_size(const char* name, const image_size& size) {
  if (!has_pixels(size)) {
    throw std::invalid_argument(std::string{name} + ": expected sides of 1 to 2^24 pixels, found " +
                                to_text(size));
  }
  return size;
}

}  // namespace detail

/// Rows and columns of zeros around what a plan keeps: a padded crop has them.
struct image_border {
  std::size_t left = 0;    ///< columns before the first one
  std::size_t top = 0;     ///< rows above the first one
  std::size_t right = 0;   ///< columns after the last one
  std::size_t bottom = 0;  ///< rows below the last one

  friend constexpr bool operator==(const image_border&, const image_border&) = default;
};

/// Which part of a picture a sample takes, and what becomes of it: crop, then resize to `scaled`,
/// then the part `kept` of that, with `border` around it, then mirror. Drawn before the picture is
/// decoded, so that only the crop is decoded. The sample is as large as `kept` and `border` are.
struct image_plan {
  image_box crop;         ///< of the picture, in its pixels
  image_size scaled;      ///< what the crop is resized to
  image_box kept;         ///< of the scaled crop; all other rows and columns are not computed
  bool mirrored = false;  ///< left and right change places, last: the border's too
  image_border border{};  ///< zeros around `kept`; most plans have none

  /// Width and height of the sample.
  [[nodiscard]] constexpr image_size size() const noexcept {
    return {border.left + kept.size.width + border.right,
            border.top + kept.size.height + border.bottom};
  }

  friend constexpr bool operator==(const image_plan&, const image_plan&) = default;
};

namespace detail {

/// The plan that takes `crop`, with `border` around it, and does not resize.
[[nodiscard]] constexpr image_plan unresized(const image_box& crop,
                                             const image_border& border = {}) noexcept {
  return {crop, crop.size, {0, 0, crop.size}, false, border};
}

}  // namespace detail

/// Draws how a picture is cropped and resized. `plan(size, random)` is for a picture of `size` with
/// the sample's own random bits; `size()` is what every sample comes to. Called as const from many
/// threads at once; what it throws reaches the consumer at that batch's turn.
template <class G>
concept image_geometry =
    requires(const G& geometry, const image_size& size, sample_generator& random) {
      { geometry.plan(size, random) } -> std::same_as<image_plan>;
      { geometry.size() } -> std::convertible_to<image_size>;
    };

namespace detail {

/// A geometry whose pictures are mirrored with probability `p`.
template <class G>
class flipped_geometry {
 public:
  /// Mirrors what `geometry` plans.
  flipped_geometry(G geometry, double p) : geometry_(std::move(geometry)), p_(p) {}

  /// The geometry's plan; then one draw more.
  [[nodiscard]] image_plan plan(const image_size& size, sample_generator& random) const {
    image_plan drawn = geometry_.plan(size, random);
    if (bernoulli(random, p_)) drawn.mirrored = !drawn.mirrored;
    return drawn;
  }
  /// The geometry's own.
  [[nodiscard]] image_size size() const { return geometry_.size(); }

 private:
  G geometry_;
  double p_;
};

}  // namespace detail

/// Mirrors a picture with probability `p`, 1/2 by default, as the end of a geometry:
/// `random_resized_crop{224} | random_flip{}` is a geometry that draws the crop and then, from two
/// words of the random bits, whether to mirror it. torchvision: `RandomHorizontalFlip`.
class random_flip {
 public:
  /// Throws std::invalid_argument unless 0 <= p <= 1.
  explicit random_flip(double p = 0.5) : p_(p) {
    if (!(p >= 0 && p <= 1)) {
      throw std::invalid_argument("random_flip: expected 0 <= p <= 1, found p = " +
                                  detail::to_text(p));
    }
  }

  /// `geometry`, and mirrored at random.
  template <image_geometry G>
  [[nodiscard]] friend detail::flipped_geometry<G> operator|(G geometry, const random_flip& flip) {
    return {std::move(geometry), flip.p_};
  }

 private:
  double p_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
