// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns true if the two-byte type `T` is an IEEE half and not a bfloat16, judged by the bits of
/// T{1}. Also returns true if `T` cannot be constructed from a float.
template <class T>
[[nodiscard]] bool is_half_float() noexcept {
  if constexpr (sizeof(T) != 2) {
    return false;
  } else if constexpr (std::is_constructible_v<T, float> && !std::is_aggregate_v<T>) {
    return std::bit_cast<std::uint16_t>(static_cast<T>(1.0F)) == 0x3c00;
  } else {
    return true;
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
