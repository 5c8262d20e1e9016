// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/value_bytes.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// What the copy of the batch `from` moves, which `layout` describes: ragged values as far as there
/// are any.
template <record_type Record, class HostBatch>
[[nodiscard]] std::size_t bytes_to_copy(const batch_layout<Record>& layout, const HostBatch& from,
                                        std::size_t samples) noexcept {
  if constexpr (Record::ragged_fields > 0) {
    return layout.used_bytes(samples, from.data());
  } else {
    return layout.used_bytes(samples);
  }
}

/// The bytes of the ragged values in the batch `from` of `samples` samples.
template <record_type Record, class HostBatch>
[[nodiscard]] auto values_to_copy(const batch_layout<Record>& layout, const HostBatch& from,
                                  std::size_t samples) noexcept {
  if constexpr (Record::ragged_fields > 0) {
    return value_bytes(const_batch_view<Record>{from.data(), layout, 0, samples});
  } else {
    return no_values{};
  }
}

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
  if constexpr (requires { device.copy_to_device(to, from.data(), bytes, stream); }) {
    device.copy_to_device(to, from.data(), bytes, stream);
  } else {
    device.copy_async(to, from.data(), bytes, stream);
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
