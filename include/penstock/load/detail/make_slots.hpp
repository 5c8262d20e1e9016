// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <penstock/core/layout.hpp>
#include <penstock/load/detail/plan/slots_wanted.hpp>
#include <penstock/load/footprint.hpp>
#include <penstock/load/options.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/last_owner.hpp>
#include <penstock/memory/support/sample_lists.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The host slots of a loader, as many as its options ask for and its budget grants. Throws
/// `pinned_budget_exceeded`, `out_of_memory`, and what the device throws.
template <record_type Record, device Device>
[[nodiscard]] std::shared_ptr<host_slots<Record, Device>> make_slots(
    const Device& device, const batch_layout<Record>& layout, const loader_options& options) {
  auto granted = reserve_slots(layout.bytes(), options);
  const auto count = static_cast<std::size_t>(granted.slot_count());
  auto ring = shared_by_leases<host_slots<Record, Device>, typename Device::stream_ref>(
      device, layout, count, slot_memory(options), std::move(granted));
  if (options.indices) ring->lists = sample_lists{count, options.batch_size};
  return ring;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
