// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What is known of the ragged fields of a record, one number a field each; nothing, and no byte,
/// for a record without any.
template <std::size_t Count>
struct ragged_lengths {
  std::array<std::uint64_t, Count> of{};  ///< the values of a sample
};
template <>
struct ragged_lengths<0> {};

/// What a layout knows of its ragged fields, one number a field each.
template <std::size_t Count>
struct ragged_places {
  std::array<std::size_t, Count> offsets_at{};  ///< where in the slab the offsets begin
  std::array<std::size_t, Count> capacity{};    ///< the values that there is room for
  friend constexpr bool operator==(const ragged_places&, const ragged_places&) = default;
};
template <>
struct ragged_places<0> {
  friend constexpr bool operator==(const ragged_places&, const ragged_places&) = default;
};

/// What is counted of the values of a batch without ragged fields.
struct no_values {};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
