// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <penstock/core/error.hpp>
#include <penstock/core/support/joined.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws `leases_exhausted` for a loader with `count` host slots, `granted` by its budget of
/// `asked`.
[[noreturn, gnu::cold]] inline void throw_slots_exhausted(std::size_t count, std::uint64_t granted,
                                                          std::uint64_t asked) {
  const std::string remedy =
      granted < asked
          ? joined({"raise budget, which had no room for the ", asked, " that were asked for"})
          : "raise prefetch";
  throw leases_exhausted(
      joined({"loader: all ", count, " host slots are held as leases: release one, or ", remedy}));
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
