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
/// for. Throws what the device throws.
template <class Device>
void synchronize_all([[maybe_unused]] const Device& device) {
  if constexpr (requires { device.synchronize(); }) device.synchronize();
}
/// Does so, whatever the device says.
template <class Device>
void settle_everything(const Device& device) noexcept {
  try {
    synchronize_all(device);
  } catch (...) {  // as above
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
