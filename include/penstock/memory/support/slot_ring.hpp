// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <penstock/core/lease.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/stream_timeline.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/slab.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The work of a stream that only one thread at a time marks, such as the copies of a feed. The
/// owner of the stream and each host slot that is free at one of its points share the timeline.
template <device Device>
using fill_timeline = stream_timeline<Device, no_lock>;

/// Slots of equal size in host memory, which copies read: one slab, and the end of the last copy
/// out of each slot. The end is a point of the timeline of a feed, or is recorded in an event of
/// the slot. `Ring` is derived from it, and knows which slots are free:
///
/// - `add_free(slot, is_copied)`: the slot is free, or is so after its last copy;
/// - `wake_after_loss()`: all slots are lost, which ends every wait for a slot;
/// - `is_in_child()`: nothing may be used, because the process is a child made by fork().
///
/// A slot is used by one thread at a time. The memory is freed after all copies out of it.
template <device Device, class Ring>
class slot_ring {
 public:
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;
  using slot_number = std::uint32_t;
  using timeline = fill_timeline<Device>;
  using point = typename timeline::point;

  /// Allocates memory for `count` slots of `slot_bytes` bytes, and keeps `granted` as long as the
  /// memory. Throws `out_of_memory`, and what the device throws.
  slot_ring(const Device& device, std::size_t slot_bytes, std::size_t count, memory_kind kind,
            memory_reservation granted = {});
  slot_ring(slot_ring&&) = delete;

  /// The device that the memory is for.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// Number of slots.
  [[nodiscard]] std::size_t count() const noexcept { return ends_.size(); }
  /// The size of all slots in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }
  /// Returns true if the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept { return memory_.pinned(); }
  /// See `pinned_block`.
  [[nodiscard]] bool registration_refused() const noexcept {
    return memory_.registration_refused();
  }
  /// The address of a slot.
  [[nodiscard]] std::byte* data(slot_number slot) const noexcept {
    return memory_.slot(slot, slot_bytes_);
  }

  /// Returns a slot that nothing reads any more.
  void release(slot_number slot) noexcept {
    if (ring().is_in_child()) return;
    memory_.forbid(slot);
    ring().add_free(slot, false);
  }
  /// Returns `slot` to the ring. The slot can be refilled after all work currently queued on
  /// `stream` has finished. If the device refuses the record, the function waits for the stream. If
  /// the device refuses that too, the slot is lost: the library cannot know when it is free.
  recorded_end release_after(slot_number slot, stream_ref stream) noexcept {
    if (ring().is_in_child()) return {};
    ends_[slot].copies.reset();
    recorded_end end = record_end(device_, ends_[slot].own, stream);
    if (end.is_lost) {
      lose();
    } else if (end.refusal) {
      release(slot);
    } else {
      ring().add_free(slot, true);
    }
    return end;
  }
  /// Returns `slot` to the ring. The slot can be refilled when `copies` has reached `at`.
  void release_at(slot_number slot, const std::shared_ptr<timeline>& copies, point at) noexcept {
    if (ring().is_in_child()) return;
    copy_completion& end = ends_[slot];
    if (end.copies != copies) end.copies = copies;  // else the reference count changes for nothing
    end.at = at;
    ring().add_free(slot, true);
  }
  /// Records that a slot is lost: it is never returned and never filled again.
  void lose() noexcept {
    if (lost_.fetch_add(1, std::memory_order_release) + 1 == count()) ring().wake_after_loss();
  }

 protected:
  /// Waits for the copies, and frees the memory. Leaks the memory if the device refuses.
  ~slot_ring();

  /// The memory that was granted by a budget.
  [[nodiscard]] const memory_reservation& granted() const noexcept { return granted_; }
  /// Number of slots that are lost.
  [[nodiscard]] std::size_t lost() const noexcept { return lost_.load(std::memory_order_acquire); }

  /// Waits for the last copy out of `slot`. Throws what the device throws.
  void wait_for_copy(slot_number slot) const { ends_[slot].wait(device_); }
  /// Returns true if the last copy out of `slot` has ended. Throws what the device throws.
  [[nodiscard]] bool is_copied(slot_number slot) const { return ends_[slot].is_reached(device_); }

  /// Lets the calling thread fill a slot that is free.
  void allow(slot_number slot) noexcept { memory_.allow(slot); }

 private:
  [[nodiscard]] Ring& ring() noexcept { return static_cast<Ring&>(*this); }

  struct copy_completion {
    typename Device::event_type own;     // marks the end if there is no timeline
    std::shared_ptr<timeline> copies{};  // the timeline of the feed that copied last
    point at = 0;                        // the end is this point of `copies`

    void wait(const Device& device) const { copies ? copies->wait(at) : device.synchronize(own); }
    [[nodiscard]] bool is_reached(const Device& device) const {
      return copies ? copies->reached(at) : device.is_complete(own);
    }
    [[nodiscard]] bool try_synchronize(const Device& device) const noexcept {
      return copies ? copies->try_synchronize(at) : synchronize_before_free(device, own);
    }
  };

  memory_reservation granted_;  // first: ends after the slab is freed
  Device device_;
  std::size_t slot_bytes_;
  slab<Device> memory_;
  std::vector<copy_completion> ends_;  // by slot
  std::atomic<std::size_t> lost_{0};   // slots that are never used again
};

template <device Device, class Ring>
slot_ring<Device, Ring>::slot_ring(const Device& device, std::size_t slot_bytes, std::size_t count,
                                   memory_kind kind, memory_reservation granted)
    : granted_(std::move(granted)),
      device_(device),
      slot_bytes_(slot_bytes),
      memory_(device, bytes_of_slots("pinned", slot_bytes, count), kind, slot_bytes) {
  ends_.reserve(count);
  while (ends_.size() < count) ends_.push_back({device.make_event(event_wait::by_host)});
  for (slot_number slot = 0; slot < count; ++slot) memory_.forbid(slot);
}

template <device Device, class Ring>
slot_ring<Device, Ring>::~slot_ring() {
  bool is_idle = true;
  for (const auto& copy : ends_) is_idle = copy.try_synchronize(device_) && is_idle;
  // No event marks the end of the work on a lost slot.
  if (lost() != 0) is_idle = synchronize_before_free(device_) && is_idle;
  if (!is_idle) memory_.leak();
}

/// A lease of a host slot. It may end while a copy out of the slot is still under way.
template <class Ring>
class host_slot_lease : public slot_lease<Ring> {
  using base = slot_lease<Ring>;

 public:
  using device_type = typename Ring::device_type;

  using base::base;

  /// The device that the memory is for.
  [[nodiscard]] const device_type& device() const noexcept {
    base::use();
    return base::slots_->device();
  }
  /// Returns true if the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept {
    base::use();
    return base::slots_->pinned();
  }

  /// Returns the slot for refilling after all work currently queued on `stream`, for a copy from
  /// the slot that has not ended. The lease is empty after the call. Throws what the device throws,
  /// for example for a stream that is being captured. Then the slot is returned after a wait for
  /// the stream. If the device refuses that too, the slot is lost.
  void release_after(typename device_type::stream_ref stream) {
    end_after(stream).rethrow_refusal();
  }
  /// Like `release_after(stream)`, but returns what the device has refused. Only `transfer` calls
  /// this.
  [[nodiscard]] recorded_end end_after(typename device_type::stream_ref stream) noexcept {
    base::use();
    return base::leave()->release_after(base::slot_, stream);
  }
  /// Returns the slot for refilling when `copies` has reached `at`. The lease is empty after the
  /// call. Only a `transfer` whose copies are the timeline calls this.
  void release_after(const std::shared_ptr<typename Ring::timeline>& copies,
                     typename Ring::point at) noexcept {
    base::use();
    base::leave()->release_at(base::slot_, copies, at);
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
