// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>

#include <penstock/core/version.hpp>
#include <penstock/image/pixels.hpp>
#include <penstock/order/random.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Which part of a picture a sample takes, and what becomes of it: crop, then resize to `scaled`,
/// then the part `kept` of that, then mirror. Drawn before the picture is decoded, so that only the
/// crop is decoded.
struct image_plan {
  image_box crop;         ///< of the picture, in its pixels
  image_size scaled;      ///< what the crop is resized to
  image_box kept;         ///< of the scaled crop; all other rows and columns are not computed
  bool mirrored = false;  ///< left and right change places, last
};

/// Draws how a picture is cropped and resized. `plan(size, random)` is for a picture of `size` with
/// the sample's own random bits; `size()` is what every sample comes to. Called as const from many
/// threads at once; what it throws reaches the consumer at that batch's turn.
template <class G>
concept image_geometry = requires(const G& geometry, const image_size& size,
                                  sample_generator& random) {
  { geometry.plan(size, random) } -> std::same_as<image_plan>;
  { geometry.size() } -> std::convertible_to<image_size>;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
