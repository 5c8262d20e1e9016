// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Floats on the device again of what has travelled in fewer bytes. Needs nvcc.

#include <array>
#include <concepts>
#include <cstddef>

#include <penstock/core/name.hpp>
#include <penstock_ext/narrow/affine_scale.hpp>
#include <penstock_ext/narrow/detail/widen_transform.cuh>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// `widen` for the CUDA device: a transform of a `transfer` that gives floats back of fields that
/// are `narrowed`, by one launch after the copy and under the next one: `transfer feed{loader,
/// stream, widen_on_device<"x">()}`. The other fields are copied in the same launch. Values and
/// scales are those of `widen`, bit for bit.
template <name... Names, std::same_as<affine_scale>... Scales>
  requires(sizeof...(Names) > 0)
[[nodiscard]] detail::cuda_widening<sizeof...(Scales), Names...> widen_on_device(
    const Scales&... fixed) {
  return detail::cuda_widening<sizeof...(Scales), Names...>{
      std::array<affine_scale, sizeof...(Scales)>{fixed...}};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
