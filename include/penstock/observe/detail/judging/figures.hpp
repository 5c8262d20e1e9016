// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstdio>
#include <string>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A share as "44 %".
[[nodiscard]] inline std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f %%", 100 * share);
  return text.data();
}
/// A number as "2.5".
[[nodiscard]] inline std::string tenths(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
