// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What the times of statistics are measured by.
enum class stats_clock {
  tsc,      ///< the processor's time stamp counter (x86), which says of itself that it is constant
  counter,  ///< the processor's virtual counter (aarch64)
  steady,   ///< `std::chrono::steady_clock`: where there is neither; costs three times as much
};

namespace detail {

/// As texts call it.
[[nodiscard]] constexpr std::string_view name_of(stats_clock clock) noexcept {
  return clock == stats_clock::tsc ? "tsc" : clock == stats_clock::counter ? "counter" : "steady";
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
