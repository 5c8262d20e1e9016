// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Queues the copy of the first `bytes` bytes of a batch in host memory to `to` in `stream`. Where
/// the batch says that its memory is not page-locked, by `pinned()`, a device that can copy from
/// such memory in a way of its own does that. Throws what the device throws.
template <class Device, class HostBatch>
void copy_from_host(const Device& device, void* to, const HostBatch& from, std::size_t bytes,
                    typename Device::stream_ref stream) {
  if constexpr (requires {
                  { from.pinned() } -> std::convertible_to<bool>;
                  device.copy_pageable(to, from.data(), bytes, stream);
                }) {
    if (!from.pinned()) return device.copy_pageable(to, from.data(), bytes, stream);
  }
  device.copy_async(to, from.data(), bytes, stream);
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
