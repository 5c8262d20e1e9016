// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>

#include <penstock/core/extents.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The d-th extent in the type `Lengths`: a length or `dyn`.
template <class Lengths>
[[nodiscard]] constexpr std::size_t fixed_extent(std::size_t d) noexcept {
  return [d]<std::size_t... Extents>(std::type_identity<penstock::extents<Extents...>>) {
    constexpr std::size_t values[] = {Extents..., 0};
    return values[d];
  }(std::type_identity<Lengths>{});
}

/// The extents of a field whose dimensions in a file are `found`: the dynamic ones are taken from
/// there.
template <class Lengths, class Length>
[[nodiscard]] Lengths extents_in(std::span<const Length> found) {
  if constexpr (Lengths::dynamic_rank == 0) {
    return Lengths{};
  } else {
    std::array<std::size_t, Lengths::dynamic_rank> dynamic{};
    std::size_t next = 0;
    for (std::size_t d = 0; d < Lengths::rank; ++d) {
      if (fixed_extent<Lengths>(d) == dyn) dynamic[next++] = static_cast<std::size_t>(found[d]);
    }
    return std::apply([](auto... lengths) { return Lengths{lengths...}; }, dynamic);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
