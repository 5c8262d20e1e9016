// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

#include <penstock/core/extents.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/transfer/device_transform.hpp>
#include <penstock/transfer/transfer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The memory of a loader and of a transfer over it.
struct feed_footprint {
  loader_footprint host;              ///< of the loader
  std::size_t device_slots = 0;       ///< `transfer_options::depth`; of `automatic` the most
  std::size_t device_slot_bytes = 0;  ///< bytes of each: a batch as the consumer gets it
  std::size_t staging_bytes = 0;      ///< two batches as they travel, where there is a transform
  std::size_t device_bytes = 0;  ///< device memory in all: what `transfer::device_bytes` says then

  /// An upper bound in bytes for what the feed allocates in host memory: 4 KiB and 1 KiB a device
  /// slot, 16 KiB more where `depth` is `automatic`, 16 bytes a sample of each slot where the
  /// loader has `observe.indices`. Without the device's own streams and events, and what a
  /// transform allocates itself.
  std::size_t bookkeeping = 0;

  friend bool operator==(const feed_footprint&, const feed_footprint&) = default;
};

namespace detail {

/// A feed of batches of `out_bytes` bytes, with `staging` bytes on their way.
inline feed_footprint feed_of(const loader_footprint& host, std::size_t out_bytes,
                              std::size_t staging, const loader_options& load,
                              const transfer_options& feed) {
  constexpr std::size_t kib = 1024;
  const std::size_t depth = checked_depth(feed).most;
  const std::size_t fixed = (feed.depth == automatic ? 20 : 4) * kib;
  return {.host = host,
          .device_slots = depth,
          .device_slot_bytes = out_bytes,
          .staging_bytes = staging,
          .device_bytes = saturating_sum(depth, out_bytes, staging),
          .bookkeeping = saturating_sum(
              depth, saturating_sum(load.observe.indices ? 16 : 0, load.batch_size, kib), fixed)};
}

}  // namespace detail

/// The memory that a loader with these options takes, and a transfer over it, in bytes, before
/// anything is taken; see `footprint` of a loader alone. Throws `option_error`, and `layout_error`.
template <record_type Record>
[[nodiscard]] feed_footprint footprint(const record_extents<Record>& extents,
                                       const loader_options& load, const transfer_options& feed) {
  const loader_footprint host = footprint<Record>(extents, load);
  return detail::feed_of(host, host.slot_bytes, 0, load, feed);
}

/// The memory of a loader and a transfer with a transform on the device.
template <record_type Record, class Transform>
[[nodiscard]] feed_footprint footprint(const record_extents<Record>& extents,
                                       const loader_options& load, const Transform& transform,
                                       const transfer_options& feed) {
  const loader_footprint host = footprint<Record>(extents, load);
  const batch_layout<detail::transformed_record_t<Transform, Record>> out{
      detail::transformed_extents<Record>(transform, extents), load.batch_size};
  const std::size_t staging = detail::saturating_sum(2, host.slot_bytes, 0);
  return detail::feed_of(host, out.bytes(), staging, load, feed);
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
