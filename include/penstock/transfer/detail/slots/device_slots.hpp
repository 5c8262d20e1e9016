// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/observe/support/lease_tracks.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/detail/device_timer.hpp>
#include <penstock/transfer/detail/host_copy.hpp>
#include <penstock/transfer/detail/slots/device_slot.hpp>
#include <penstock/transfer/detail/slots/refused_releases.hpp>
#include <penstock/transfer/detail/slots/slot_places.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The ring of device slots: memory at fixed addresses, with the events that order their use, and
/// the copy stream. Lives until the last lease is gone.
template <record_type Record, device Device>
class device_slots {
  using slot_type = device_slot<Device>;

 public:
  using stream_ref = typename Device::stream_ref;
  lease_tracks leases;  ///< what records them, one at a time of each slot
  sample_lists lists;   ///< which samples the slots hold, where that is asked for

  /// `depth` slots for batches of this layout, on `device`, of which there may be `most`
  /// later. Throws `out_of_memory`, and what the device throws.
  device_slots(const Device& device, const batch_layout<Record>& layout, std::size_t depth,
               std::size_t most)
      : device_(device),
        layout_(layout),
        memory_(device, layout, depth, most),
        copy_stream_(device.make_stream()),
        slots_(most),
        open_(depth) {
    for (std::size_t slot = 0; slot < depth; ++slot) slots_[slot].make_events(device);
  }
  device_slots(device_slots&&) = delete;

  /// The memory goes: no copy may still write it, no kernel still read it.
  ~device_slots() {
    for (std::size_t slot = 0; slot < memory_.count(); ++slot) slots_[slot].settle_all(device_);
  }

  /// The device whose memory it is.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// Where a batch's fields lie in a slot.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return layout_; }
  /// How many slots are filled by turns, and how many there may be.
  [[nodiscard]] std::size_t count() const noexcept { return open_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t most() const noexcept { return slots_.size(); }
  /// How many bytes all slots take.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }
  /// The first byte of a slot, on the device.
  [[nodiscard]] std::byte* data(std::size_t slot) const noexcept { return memory_.data(slot); }

  /// Fills `count` slots by turns from now on, of the `most`, or as many as the device has room
  /// for. For the thread that fills them. Throws what the device throws.
  void open(std::size_t count) {
    while (memory_.count() < count) {
      slots_[memory_.count()].make_events(device_);
      if (!memory_.add(layout_)) break;
    }
    open_.store((std::min)(count, memory_.count()), std::memory_order_relaxed);
  }

  /// What times copies; null: nothing does.
  void time_by(device_timer<Device>* timer) noexcept { timer_ = timer; }

  /// Whether a slot may get a new copy, as far as the host has to know: its lease is gone, and the
  /// events say from when on. Acquires what the releasing thread has recorded.
  [[nodiscard]] bool is_released(std::size_t slot) const noexcept {
    return slots_[slot].is_released.load(std::memory_order_acquire);
  }

  /// Returns once `is_over()`, asked again after each release and each `wake`.
  void wait_for_release(auto is_over) const {
    releases_.wait([&](std::uint32_t) { return is_over(); });
  }
  /// Ends the sleep of a thread in `wait_for_release`, which then asks again. From any thread.
  void wake() noexcept { releases_.advance(); }

  /// Queues the copy of a batch into `slot` after the release of the previous batch, and gives the
  /// host memory back after the copy. Blocks nothing. Throws what the device throws; slot and
  /// batch are free again then, after whatever was queued.
  template <class HostBatch>
  void copy_in(std::size_t slot, HostBatch&& from) {
    slot_type& to = slots_[slot];
    const stream_ref stream = copy_stream_;
    to.wait_for_release(device_, stream);
    const batch_info info = from.info();
    copy(data(slot), from, bytes_to_copy(layout_, from, info.size), stream);
    try {
      to.note_arrival(info, stream);
      to.mark_arrival(device_, from, stream);
    } catch (...) {
      settle(device_, stream);  // the copy may run, and the batch's memory is refilled next
      throw;
    }
    to.occupy(info, stream);
  }

  /// Queues the copy by way of `stage`, which takes it, and on a stream of its own makes of it what
  /// the slot gets. The copy does not wait for the slot's release but for the transform that has
  /// read its place in the stage, and it gives the host memory back before the transform has run.
  template <class HostBatch, class Stage>
  void copy_in(std::size_t slot, HostBatch&& from, Stage& stage) {
    slot_type& to = slots_[slot];
    const stream_ref copies = copy_stream_;
    const stream_ref transforms = stage.stream();
    const batch_info info = from.info();
    // The slot may have been filled once more since: its event marks a later transform then, and
    // the copy waits for that. So it is with a depth of 1.
    if (const auto reader = stage.reader()) device_.wait(copies, slots_[*reader].copied);
    copy(stage.data(), from, bytes_to_copy(stage.in_layout(), from, info.size), copies);
    try {
      stage.wait_for_copy(from, copies);
      to.wait_for_release(device_, transforms);
      stage.enqueue(data(slot), info);
      to.note_arrival(info, transforms);
      device_.record(to.copied, transforms);
    } catch (...) {
      settle(device_, copies);      // as above
      settle(device_, transforms);  // nothing else marks the end of what was queued
      throw;
    }
    stage.note_reader(slot);
    to.occupy(info, transforms);
  }

  /// Makes `stream`, which is usable, wait for what fills `slot`.
  void wait_for_copy(std::size_t slot, stream_ref stream) {
    device_.wait(stream, slots_[slot].arrival());
  }
  /// Whether that will block the calling thread.
  [[nodiscard]] bool will_block(std::size_t slot, stream_ref stream) const {
    return slots_[slot].blocks(device_, stream);
  }
  /// Makes `stream`, which is new to the feed, wait for what fills `slot`.
  void wait_for_copy_anew(std::size_t slot, stream_ref stream) {
    device_.require_usable(stream);
    device_.wait(stream, slots_[slot].arrival());
  }

  /// Which batch the slot holds.
  [[nodiscard]] const batch_info& info(std::size_t slot) const noexcept {
    return slots_[slot].info;
  }
  /// The words of its samples. The feed's thread keeps them, before the copy.
  [[nodiscard]] sample_tags& tags(std::size_t slot) noexcept { return slots_[slot].tags; }

  /// What a checked build watches of the lease of `slot`, which is handed to `stream` now.
  [[nodiscard]] lease_guard hand_out(std::size_t slot,
                                     [[maybe_unused]] stream_ref stream) noexcept {
    leases.begin(slot);
    memory_.name_batch(slot, slots_[slot].info);
    if constexpr (checked) slots_[slot].uses = uses_of(stream);
    return std::move(slots_[slot].lease);
  }

  /// Before `release`: `lease` is over for the host, which a trace records; in a checked build it
  /// is so for each stream after the work that it has been given by now.
  void end([[maybe_unused]] lease_guard& lease, [[maybe_unused]] std::size_t slot,
           [[maybe_unused]] stream_ref stream) noexcept {
    leases.end(slot, slots_[slot].info);
    if constexpr (checked) slots_[slot].end(lease, stream, memory_.leave(slot));
  }

  /// Whether the release of `slot` waits for `stream` beside the lease's own.
  [[nodiscard]] bool is_extra(std::size_t slot, stream_ref stream) const noexcept {
    return slots_[slot].is_extra(stream);
  }

  /// The lease of `slot` ends: what fills it next waits for all that `stream` has been given.
  /// Where the device refuses the record the work is waited for here, and `rethrow_poison` tells;
  /// where it refuses that as well, nothing tells when the slot is free, and it is lost.
  void release(std::size_t slot, stream_ref stream) noexcept {
    slot_type& from = slots_[slot];
    try {
      from.record_release(device_, stream);
    } catch (...) {
      const auto refusal = std::current_exception();
      // No event tells when this work is done, and the memory may go with this lease.
      const bool is_idle = from.settle_users(device_, stream);
      refused_.note(refusal, !is_idle);
      if (!is_idle) return wake();
    }
    if (from.mark != nullptr) from.mark->let_go();
    // Invariant: the flag goes up after the records, because a wait binds to the record at the time
    // of the call: an issuer that sees the flag waits for these records and not for older ones.
    from.is_released.store(true, std::memory_order_release);
    wake();  // after the flag: a waiter looks at it again
  }

  /// Gives a slot back that was filled and never handed out.
  void discard(std::size_t slot) noexcept {
    slots_[slot].lease.end();
    release(slot, *slots_[slot].filled_by);
  }

  /// The release of `slot` shall wait for `stream` too. Allocates an event the first time.
  void also_release_after(std::size_t slot, stream_ref stream) {
    slots_[slot].also_release_after(device_, stream);
  }

  /// Whether `rethrow_poison` would throw.
  [[nodiscard]] bool is_poisoned() const noexcept { return refused_.any(); }
  /// Throws the error of a release that the device has refused, if there was one: once, or for good
  /// when a slot is lost.
  void rethrow_poison() { refused_.rethrow(); }

 private:
  template <class HostBatch>
  void copy(std::byte* to, HostBatch& from, std::size_t bytes, stream_ref stream) {
    if (timer_ != nullptr) timer_->begin_copy(stream);
    copy_from_host(device_, to, from, bytes, stream);
    if (timer_ != nullptr) timer_->end_copy(stream);
  }

  Device device_;
  batch_layout<Record> layout_;
  slot_places<Device> memory_;
  typename Device::stream_type copy_stream_;
  std::vector<slot_type> slots_;   // the first `memory_.count()` are in use, or were
  std::atomic<std::size_t> open_;  // relaxed: of the filling thread; others only ask
  refused_releases refused_;
  device_timer<Device>* timer_ = nullptr;
  waitable_counter releases_;  // moves after each release: a consumer may wait for one
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
