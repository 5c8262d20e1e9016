// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A letter of ASCII as a small one; other bytes as they are.
[[nodiscard]] constexpr char lowered(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
