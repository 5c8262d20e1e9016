// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Waits for the work of a stream, or for an event. Returns whether the wait succeeded.
template <class Device, class StreamOrEvent>
bool settle(const Device& device, const StreamOrEvent& work) noexcept {
  try {
    device.synchronize(work);
    return true;
  } catch (...) {  // most likely a device in error, which does no work any more
    return false;
  }
}

/// Waits for all work of the device, where it can do that, for work whose stream can't be waited
/// for: before memory goes. It ends a capture.
template <class Device>
void settle_everything([[maybe_unused]] const Device& device) noexcept {
  if constexpr (requires { device.synchronize(); }) {
    try {
      device.synchronize();
    } catch (...) {  // as above
    }
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
