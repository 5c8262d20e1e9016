// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// One number for each ragged field of a record; empty for a record without ragged fields.
template <std::size_t Count>
struct ragged_lengths {
  std::array<std::uint64_t, Count> of{};  ///< the number of values of a sample
};
template <>
struct ragged_lengths<0> {};

/// The layout of the ragged fields, one number per field.
template <std::size_t Count>
struct ragged_places {
  std::array<std::size_t, Count> offsets_at{};  ///< the offset of the offsets in the slab
  std::array<std::size_t, Count> capacity{};    ///< the capacity in values
  friend constexpr bool operator==(const ragged_places&, const ragged_places&) = default;
};
template <>
struct ragged_places<0> {
  friend constexpr bool operator==(const ragged_places&, const ragged_places&) = default;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
