// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// No slot of `count` device slots is free, and none is waited for any more.
[[noreturn, gnu::cold]] inline void throw_no_slot(std::size_t count, bool is_stopped) {
  const std::string all = "all " + std::to_string(count);
  if (is_stopped) {
    throw cancelled("cancelled: a stop of the source was requested while " + all +
                    " device slots were held as leases");
  }
  throw leases_exhausted("transfer: " + all +
                         " device slots are held as leases: release one, raise depth, or let it "
                         "wait for leases that end on other threads (when_held)");
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
