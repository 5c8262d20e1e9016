// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/memory/support/slot_ring.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A lease of a batch in host memory, without the record type. A `transfer` copies the batch from
/// the leased slot.
template <device Device>
class host_lease : public detail::host_slot_lease<detail::host_slots<Device>> {
  using base = detail::host_slot_lease<detail::host_slots<Device>>;

 public:
  using base::base;

  /// Returns the `size()` dataset indices of the samples in the batch, in batch order. For a
  /// replaced sample, this is the index of the replacement. Empty unless
  /// `loader_options::instrumentation.indices` is set. Valid until the lease ends.
  [[nodiscard]] std::span<const std::uint64_t> indices() const noexcept {
    base::use();
    return base::slots_->lists.indices(base::slot_, base::size());
  }
  /// Returns the positions of samples that could not be read and were replaced
  /// (`error_action::replace`), in ascending order. Empty unless
  /// `loader_options::instrumentation.indices` is set. Valid until the lease ends.
  [[nodiscard]] std::span<const std::uint64_t> replaced() const noexcept {
    base::use();
    return base::slots_->lists.replaced(base::slot_);
  }

  /// Moves the sample lists of the batch to `slot` of `to`. The lists of this lease are unspecified
  /// after the call. Only `transfer` calls this.
  void move_lists_to(detail::sample_lists& to, std::size_t slot) noexcept {
    base::use();
    to.take(slot, base::slots_->lists, base::slot_, base::size());
  }
};

/// A lease of a batch in host memory. Move-only. The destructor releases the slot, which can then
/// be refilled. A lease may be moved out of the loop and may outlive the loader, because the lease
/// shares ownership of the memory. Only one thread at a time may use a lease. Move the lease to use
/// it on another thread. Any thread may destroy a lease.
template <record_type Record, device Device>
using host_batch = lease<Record, host_lease<Device>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
