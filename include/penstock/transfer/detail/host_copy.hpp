// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <vector>

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

/// Whether a batch in host memory does not say that its memory is not page-locked.
template <class HostBatch>
[[nodiscard]] bool is_pinned([[maybe_unused]] const HostBatch& from) {
  if constexpr (requires {
                  { from.pinned() } -> std::convertible_to<bool>;
                }) {
    return from.pinned();
  } else {
    return true;
  }
}

/// Several copies of pinned memory that a device does by one call, where it can.
template <class Device>
class batched_copies {
 public:
  using stream_ref = typename Device::stream_ref;

  /// Takes memory for copies of up to `most` batches if it is wanted and the device can do that.
  /// Throws what the device throws.
  batched_copies([[maybe_unused]] const Device& device, bool is_wanted, std::size_t most) {
    if constexpr (requires { device.copies_batches(); }) {
      if (!is_wanted || !device.copies_batches()) return;
      to_.reserve(most);
      from_.reserve(most);
      bytes_.reserve(most);
      is_on_ = true;
    }
  }

  [[nodiscard]] bool is_on() const noexcept { return is_on_; }
  /// One more copy, for which there is room.
  void add(void* to, const void* from, std::size_t bytes) noexcept {
    to_.push_back(to);
    from_.push_back(from);
    bytes_.push_back(bytes);
  }
  /// Queues them, and has none any more. Throws what the device throws.
  void queue([[maybe_unused]] const Device& device, [[maybe_unused]] stream_ref stream) {
    if constexpr (requires { device.copy_all_to_device(to_, from_, bytes_, stream); }) {
      device.copy_all_to_device(to_, from_, bytes_, stream);
    }
    clear();
  }
  void clear() noexcept {
    to_.clear();
    from_.clear();
    bytes_.clear();
  }

 private:
  bool is_on_ = false;
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<std::size_t> bytes_;
};

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
