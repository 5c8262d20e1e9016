// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>

#include <penstock/core/batch.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/device/device.hpp>
#include <penstock/transfer/detail/device_slots.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Throws the error for a call of `host` with a record that is not the record of the source.
[[noreturn, gnu::cold]] inline void throw_other_record() {
  throw std::logic_error(
      "penstock::device_batch: host() was called for another record than that of the source's "
      "batches: after a transform, name the record before the transform: batch.host<digit>()");
}

}  // namespace detail

/// A lease of one batch in device memory, for batches of any record.
template <device Device>
class device_lease : public slot_lease<detail::device_slots<Device>> {
  using slots_type = detail::device_slots<Device>;
  using base = slot_lease<slots_type>;

 protected:
  using base::guard_;
  using base::slot_;
  using base::slots_;
  using base::use;

 public:
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  using base::base;

  /// Returns true if the lease holds a batch in `ring`. Only the feed that owns `ring` calls this.
  [[nodiscard]] bool is_in(const slots_type& ring) const noexcept { return slots_.get() == &ring; }

  /// Ends the lease, if any. Only the feed calls this, between two batches.
  using base::release;
  /// Records that the loop body has ended, and that the lease ends next. Only the feed calls this.
  void record_left() noexcept {
    if (slots_ != nullptr) slots_->record_left(slot_);
  }
  /// Ends the lease, and records the release together with other releases. Only the feed calls
  /// this.
  void defer_release() noexcept { base::leave()->defer_release(slot_); }

  /// Returns the index of the slot that holds the batch (see `slot_lease::slot`). If the device
  /// reads the batch directly from its host slot (`transfer_options::tuning.zero_copy`), this is
  /// the host slot.
  [[nodiscard]] std::size_t slot() const noexcept {
    return slots_ == nullptr ? slot_ : slots_->number(slot_);
  }

  /// Returns the device that owns the memory of the batch.
  [[nodiscard]] const Device& device() const noexcept {
    use();
    return slots_->device();
  }

  /// Returns the dataset indices of the samples in the batch, like `host_batch::indices`. In host
  /// memory, valid until the lease ends. Empty unless the source is a loader with
  /// `loader_options::instrumentation.indices`.
  [[nodiscard]] std::span<const std::uint64_t> indices() const noexcept {
    use();
    return slots_->lists.indices(slot_, base::size());
  }
  /// Returns the positions of replaced samples in the batch, like `host_batch::replaced`. In host
  /// memory, valid until the lease ends.
  [[nodiscard]] std::span<const std::uint64_t> replaced() const noexcept {
    use();
    return slots_->lists.replaced(slot_);
  }

  /// Returns the stream on which the batch is ordered. Later work on this stream reads the copied
  /// data.
  [[nodiscard]] stream_ref stream() const noexcept {
    use();
    return slots_->stream_of(slot_);
  }

  /// Implements `lease::host`.
  template <record_type Source>
  [[nodiscard]] const_batch_view<Source> host_view() const {
    use();
    const auto view = slots_->host(slot_).template view_as<Source>();
    if (!view) detail::throw_other_record();
    return *view;
  }

  /// Returns one word per sample, in batch order, set by the batch source (for example `batcher`).
  /// Empty if the source does not set words. In host memory, valid until the lease ends.
  [[nodiscard]] std::span<const std::uint64_t> tags() const noexcept {
    use();
    return slots_->tags(slot_);
  }

  /// Returns true if work on `stream` runs after the copy of the batch, and the release waits for
  /// that work. Examples are the consumer stream and streams passed to `also_used_on`.
  [[nodiscard]] bool is_ordered_on([[maybe_unused]] stream_ref stream) const noexcept {
    use();
    if constexpr (std::equality_comparable<stream_ref>) {
      return stream == slots_->stream_of(slot_) || slots_->is_extra(slot_, stream);
    } else {
      return true;
    }
  }

  /// Records that the step writes to `data`, which is a slot of `owner`. Only `results` calls this.
  void record_result(const void* owner, const void* data) const {
    use();
    detail::noted_results& noted = slots_->results(slot_);
    for (auto& [known, at] : noted) {
      if (known == owner) {
        at = data;
        return;
      }
    }
    noted.emplace_back(owner, data);
  }
  /// Returns the result slots recorded for this batch, with their owners. Only `step_graphs` calls
  /// this.
  [[nodiscard]] std::span<const std::pair<const void*, const void*>> results() const noexcept {
    use();
    return slots_->results(slot_);
  }

  /// Makes `other`, an additional stream, wait for the copy of the batch, and makes the release
  /// wait for `other`. The first call for each slot allocates an event. Propagates errors from the
  /// device.
  void also_used_on(stream_ref other) {
    use();
    slots_->also_used_on(slot_, other);
  }

  /// Aborts, in a checked build, unless the end of the lease is ordered after work on `stream`.
  /// Called by `used_on`.
  void require_ordered([[maybe_unused]] stream_ref stream) const noexcept {
    if constexpr (detail::checked) {
      if (is_ordered_on(stream)) return;
      guard_.fail(
          "its release does not wait for the stream that uses it. Use the batch on the feed's "
          "stream, or call also_used_on(stream) first");
    }
  }
};

/// A lease of one batch in device memory. Move-only. The destructor releases the slot, which is
/// overwritten only after all work queued on the consumer stream at that time.
///
/// A lease may be moved out of the loop, and may outlive the feed and the loader. The consumer
/// stream must outlive the lease. Only one thread at a time may use a lease. Move the lease to use
/// it on another thread. Any thread and any work on a CPU stream may destroy a lease. Host
/// functions of a CUDA stream must not call CUDA, and therefore must not destroy a lease.
template <record_type Record, device Device>
using device_batch = lease<Record, device_lease<Device>>;

}  // namespace PENSTOCK_ABI
}  // namespace penstock
