// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/stream_timeline.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slab.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The timeline of a stream that only one thread at a time marks, such as the copy stream of a
/// feed. Shared by the owner of the stream and each host slot that becomes free at a point of the
/// timeline.
template <device Device>
using fill_timeline = stream_timeline<Device, no_lock>;

/// Slots of equal size in one slab of host memory, and the end of the last copy from each slot. The
/// end of a copy is a point on a feed timeline, or is recorded in a slot event. Derived classes
/// store the free slots.
///
/// Only one thread at a time may use a slot. The memory is freed after all copies from it have
/// ended.
template <device Device>
class slot_ring {
 public:
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;
  using slot_number = std::uint32_t;
  using timeline = fill_timeline<Device>;
  using point = typename timeline::point;

  /// Creates `count` slots for batches of `layout` in `memory`, whose unit is a slot. Owns
  /// `granted` until the memory is freed. Propagates errors from the device.
  slot_ring(const Device& device, slot_layout layout, slab<Device> memory, std::size_t count,
            memory_reservation granted = {});
  slot_ring(slot_ring&&) = delete;
  /// Waits for the copies and frees the memory. If waiting fails, leaks the memory.
  virtual ~slot_ring();

  /// Returns the device that copies from the slots.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// Returns the layout of a batch in a slot.
  [[nodiscard]] const slot_layout& layout() const noexcept { return layout_; }
  /// Returns the number of slots.
  [[nodiscard]] std::size_t count() const noexcept { return ends_.size(); }
  /// Returns the total size of all slots in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }
  /// Returns true if the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept { return memory_.pinned(); }
  /// Returns `slab::huge_page_bytes`.
  [[nodiscard]] std::size_t huge_page_bytes() const noexcept { return memory_.huge_page_bytes(); }
  /// Returns the memory reservation of the slots.
  [[nodiscard]] const memory_reservation& granted() const noexcept { return granted_; }
  /// Returns `pinned_block::registration_failed`.
  [[nodiscard]] bool registration_failed() const noexcept { return memory_.registration_failed(); }
  /// Returns the address of a slot.
  [[nodiscard]] std::byte* data(slot_number slot) const noexcept { return memory_.slot(slot); }

  /// Returns the unused `slot` to the ring.
  void release(slot_number slot) noexcept {
    if (is_in_child()) return;
    memory_.forbid(slot);
    add_free(slot, false);
  }
  /// Returns `slot` to the ring. The slot can be refilled after all work currently queued on
  /// `stream` has finished. If recording the event fails, the function waits for the stream. If
  /// waiting fails too, the slot is lost, because the end of its use is unknown.
  recorded_end release_after(slot_number slot, stream_ref stream) noexcept {
    if (is_in_child()) return {};
    ends_[slot].copies.reset();
    recorded_end end = record_end(device_, ends_[slot].own, stream);
    if (end.is_lost) {
      lose();
    } else if (end.error) {
      release(slot);
    } else {
      add_free(slot, true);
    }
    return end;
  }
  /// Returns `slot` to the ring. The slot can be refilled when `copies` has reached `at`.
  void release_at(slot_number slot, const std::shared_ptr<timeline>& copies, point at) noexcept {
    if (is_in_child()) return;
    copy_completion& end = ends_[slot];
    if (end.copies != copies) end.copies = copies;  // avoids a change of the reference count
    end.at = at;
    add_free(slot, true);
  }
  /// Records that a slot is lost. A lost slot is never returned or refilled.
  void lose() noexcept {
    wake_after_loss(lost_.fetch_add(1, std::memory_order_release) + 1 == count());
  }

  /// Ends a lease on the host. The caller then returns the slot.
  virtual void close_lease(slot_number slot, const batch_info& batch,
                           lease_guard& guard) noexcept = 0;
  /// Makes later work on `stream` wait for work of another stream that still writes the batch in
  /// `slot`. Does not block. Propagates errors from the device.
  virtual void wait_until_written(slot_number, stream_ref) const {}

 protected:
  /// Returns the number of lost slots.
  [[nodiscard]] std::size_t lost() const noexcept { return lost_.load(std::memory_order_acquire); }

  /// Waits for the last copy from `slot`. Propagates errors from the device.
  void wait_for_copy(slot_number slot) const { ends_[slot].wait(device_); }
  /// Returns true if the last copy from `slot` has ended. Propagates errors from the device.
  [[nodiscard]] bool is_copied(slot_number slot) const { return ends_[slot].is_reached(device_); }

  /// Allows access to a free slot, so that the calling thread can fill it (see `slab::allow`).
  void allow(slot_number slot) noexcept { memory_.allow(slot); }

 private:
  /// Adds a slot that is free now, or after its last copy if `is_copied` is true.
  virtual void add_free(slot_number slot, bool is_copied) noexcept = 0;
  /// Called when a slot is lost. If no slot is left, ends all waits for a slot.
  virtual void wake_after_loss(bool is_last) noexcept = 0;
  /// Returns true in a forked child process, which must not use the slots.
  [[nodiscard]] virtual bool is_in_child() const noexcept { return false; }

  struct copy_completion {
    typename Device::event_type own;     // marks the end of the copy if no timeline does
    std::shared_ptr<timeline> copies{};  // timeline of the feed that copied last
    point at = 0;                        // point of `copies` at which the copy ends

    void wait(const Device& device) const { copies ? copies->wait(at) : device.synchronize(own); }
    [[nodiscard]] bool is_reached(const Device& device) const {
      return copies ? copies->reached(at) : device.is_complete(own);
    }
    [[nodiscard]] bool try_synchronize(const Device& device) const noexcept {
      return copies ? copies->try_synchronize(at) : synchronize_before_free(device, own);
    }
  };

  memory_reservation granted_;  // declared first, and therefore released after the slab is freed
  Device device_;
  slot_layout layout_;
  slab<Device> memory_;
  std::vector<copy_completion> ends_;  // indexed by slot
  std::atomic<std::size_t> lost_{0};   // number of lost slots
};

template <device Device>
slot_ring<Device>::slot_ring(const Device& device, slot_layout layout, slab<Device> memory,
                             std::size_t count, memory_reservation granted)
    : granted_(std::move(granted)),
      device_(device),
      layout_(std::move(layout)),
      memory_(std::move(memory)) {
  ends_.reserve(count);
  while (ends_.size() < count) ends_.push_back({device.make_event(event_wait::by_host)});
  for (slot_number slot = 0; slot < count; ++slot) memory_.forbid(slot);
}

template <device Device>
slot_ring<Device>::~slot_ring() {
  bool is_idle = true;
  for (const auto& copy : ends_) is_idle = copy.try_synchronize(device_) && is_idle;
  // A lost slot has no event that marks the end of the work on it.
  if (lost() != 0) is_idle = synchronize_before_free(device_) && is_idle;
  if (!is_idle) memory_.leak();
}

/// A lease of a host slot. The lease may end while a copy from the slot is in flight.
template <class Ring>
class host_slot_lease : public slot_lease<Ring> {
  using base = slot_lease<Ring>;

 public:
  using device_type = typename Ring::device_type;

  using base::base;

  /// Returns the device that copies from the slot.
  [[nodiscard]] const device_type& device() const noexcept {
    base::use();
    return base::slots_->device();
  }
  /// Returns true if the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept {
    base::use();
    return base::slots_->pinned();
  }

  /// Ends the lease while a copy from the slot is in flight. The slot can be refilled after all
  /// work currently queued on `stream` has finished. The lease is empty after the call. If
  /// recording the event fails, for example because the stream is being captured, waits for the
  /// stream, returns the slot, and throws the error from the device. If waiting fails too, the slot
  /// is lost.
  void release_after(typename device_type::stream_ref stream) { end_after(stream).rethrow_error(); }
  /// Ends the lease like `release_after(stream)`, but returns the error instead of throwing. Only
  /// `transfer` calls this.
  [[nodiscard]] recorded_end end_after(typename device_type::stream_ref stream) noexcept {
    base::use();
    return base::leave()->release_after(base::slot_, stream);
  }
  /// Ends the lease. The slot can be refilled when `copies` has reached `at`. The lease is empty
  /// after the call. Only a `transfer` whose copies are on that timeline calls this.
  void release_after(const std::shared_ptr<typename Ring::timeline>& copies,
                     typename Ring::point at) noexcept {
    base::use();
    base::leave()->release_at(base::slot_, copies, at);
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
