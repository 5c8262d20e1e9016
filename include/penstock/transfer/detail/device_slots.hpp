// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/checked.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/detail/host_slots.hpp>
#include <penstock/memory/detail/slab.hpp>
#include <penstock/threads/sequence.hpp>
#include <penstock/transfer/detail/host_copy.hpp>
#include <penstock/transfer/detail/refused_releases.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The ring of device slots: `depth` slabs of device memory at fixed addresses, with the events
/// that order their use, and the copy stream. Lives until the last lease is gone.
template <record_type Record, device Device>
class device_slots {
 public:
  using stream_ref = typename Device::stream_ref;

  /// `depth` slots for batches of this layout, on the device `where`. Throws `out_of_memory`, and
  /// what the device throws.
  device_slots(const Device& where, const batch_layout<Record>& layout, std::size_t depth)
      : device_(where),
        layout_(layout),
        memory_(where, bytes_of(layout, depth), memory_kind::device),
        copy_stream_(where.make_stream()),
        slots_(depth) {
    for (auto& slot : slots_) {
      slot.copied = where.make_event();
      slot.released = where.make_event();
    }
  }
  device_slots(device_slots&&) = delete;

  /// The memory goes: no copy may still write it, no kernel still read it.
  ~device_slots() {
    for (auto& slot : slots_) {
      settle(slot.copied);
      settle(slot.released);
      for (auto& extra : slot.extras) settle(extra.released);
    }
  }

  /// Where a batch's fields lie in a slot.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return layout_; }
  /// How many slots there are.
  [[nodiscard]] std::size_t count() const noexcept { return slots_.size(); }
  /// How many bytes all slots take.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }
  /// The first byte of a slot, on the device.
  [[nodiscard]] std::byte* data(std::size_t slot) const noexcept {
    return memory_.data() + slot * layout_.bytes();
  }

  /// Whether a slot may get a new copy, as far as the host has to know: its lease is gone, and the
  /// events say from when on. Acquires what the releasing thread has recorded.
  [[nodiscard]] bool is_released(std::size_t slot) const noexcept {
    return slots_[slot].is_released.load(std::memory_order_acquire);
  }

  /// Returns once `is_over()`, which is asked again after each release and each `wake`.
  template <class IsOver>
  void wait_for_release(IsOver is_over) const {
    releases_.wait([&](std::uint32_t) { return is_over(); });
  }
  /// Has who waits look again. From any thread.
  void wake() noexcept { releases_.advance(); }

  /// Queues the copy of a batch into `slot` behind the release of the batch before, and gives the
  /// host memory back behind the copy. Blocks nothing. Throws what the device throws; slot and
  /// batch are free again then, behind whatever was queued.
  template <class HostBatch>
  void copy_in(std::size_t slot, HostBatch&& from) {
    state& to = slots_[slot];
    const stream_ref stream = copy_stream_;
    wait_for_release(to, stream);
    const batch_info info = from.info();
    detail::copy_from_host(device_, data(slot), from, layout_.used_bytes(info.size), stream);
    try {
      note_arrival(to, info, stream);
      device_.record(to.copied, stream);
      from.release_after(stream);
    } catch (...) {
      settle(stream);  // the copy may run, and the batch's memory is about to be refilled
      throw;
    }
    occupy(to, info);
  }

  /// The same by way of `stage`, which takes the copy and makes of it what the slot gets. The copy
  /// does not wait for the slot's release, and gives the host memory back before the transform has
  /// run.
  template <class HostBatch, class Stage>
  void copy_in(std::size_t slot, HostBatch&& from, Stage& stage) {
    state& to = slots_[slot];
    const stream_ref stream = copy_stream_;
    const batch_info info = from.info();
    detail::copy_from_host(device_, stage.data(), from, stage.used_bytes(info.size), stream);
    try {
      from.release_after(stream);
      wait_for_release(to, stream);
      stage.enqueue(data(slot), info.size, stream);
      note_arrival(to, info, stream);
      device_.record(to.copied, stream);
    } catch (...) {
      settle(stream);  // as above; and nothing else marks the end of what was queued
      throw;
    }
    occupy(to, info);
  }

  /// Makes `stream` wait for the copy into `slot`.
  void wait_for_copy(std::size_t slot, stream_ref stream) {
    device_.require_usable(stream);
    device_.wait(stream, slots_[slot].copied);
  }

  /// Which batch the slot holds.
  [[nodiscard]] const batch_info& info(std::size_t slot) const noexcept {
    return slots_[slot].info;
  }

  /// What a checked build watches of the lease of `slot`, which is handed to `stream` now.
  [[nodiscard]] detail::lease_guard hand_out(std::size_t slot,
                                             [[maybe_unused]] stream_ref stream) noexcept {
    if constexpr (detail::checked) slots_[slot].uses = uses_of(stream);
    return std::move(slots_[slot].lease);
  }

  /// In a checked build, before `release`: `lease` is over for the host, and for each stream behind
  /// the work that it has been given by now.
  void end([[maybe_unused]] detail::lease_guard& lease, [[maybe_unused]] std::size_t slot,
           [[maybe_unused]] stream_ref stream) noexcept {
    if constexpr (detail::checked) {
      const state& from = slots_[slot];
      if (lease.was_seen_in_body() && from.extras_used == 0 && from.uses &&
          from.uses == uses_of(stream)) {
        lease.fail(
            "a thread took its data, but the feed was given a stream, which nobody has used since: "
            "nothing has waited for the copy. Leave the stream out (transfer feed{loader}) where "
            "the "
            "loop's body is the step, or synchronise first");
      }
      const auto ended = lease.end_behind(1 + from.extras_used);
      ended.behind(stream, data(slot), layout_.bytes());
      for (std::size_t i = 0; i < from.extras_used; ++i) {
        ended.behind(*from.extras[i].stream, data(slot), layout_.bytes());
      }
    }
  }

  /// Whether the release of `slot` waits for `stream` beside the lease's own.
  [[nodiscard]] bool is_extra(std::size_t slot, stream_ref stream) const noexcept {
    const state& of = slots_[slot];
    for (std::size_t i = 0; i < of.extras_used; ++i) {
      if (*of.extras[i].stream == stream) return true;
    }
    return false;
  }

  /// The lease of `slot` ends: the next copy into it waits for all that `stream` has been given.
  /// Where the device refuses the record the work is waited for here, and `rethrow_poison` tells;
  /// where it refuses that as well, nobody knows when the slot is free, and it is lost.
  void release(std::size_t slot, stream_ref stream) noexcept {
    state& from = slots_[slot];
    try {
      record_usable(from.released, stream);
      for (std::size_t i = 0; i < from.extras_used; ++i) {
        record_usable(from.extras[i].released, *from.extras[i].stream);
      }
    } catch (...) {
      const auto refusal = std::current_exception();
      // No event tells when this work is done, and the memory may go with this lease.
      bool is_idle = settle(stream);
      for (std::size_t i = 0; i < from.extras_used; ++i) {
        is_idle = settle(*from.extras[i].stream) && is_idle;
      }
      from.extras_used = 0;
      refused_.note(refusal, !is_idle);
      if (!is_idle) return wake();
    }
    // Invariant: the flag goes up after the records, because a wait binds to the record at the time
    // of the call: an issuer that sees the flag waits for these records and not for older ones.
    from.is_released.store(true, std::memory_order_release);
    wake();  // after the flag: who waits looks at it again
  }

  /// Gives a slot back that was copied into and never handed out.
  void discard(std::size_t slot) noexcept {
    slots_[slot].lease.end();
    release(slot, copy_stream_);
  }

  /// The release of `slot` shall wait for `stream` too. Allocates an event the first time.
  void also_release_after(std::size_t slot, stream_ref stream) {
    state& to = slots_[slot];
    if (to.extras_used == to.extras.size()) {
      to.extras.push_back({std::nullopt, device_.make_event()});
    }
    to.extras[to.extras_used].stream = stream;
    ++to.extras_used;
  }

  /// Whether `rethrow_poison` would throw.
  [[nodiscard]] bool is_poisoned() const noexcept { return refused_.any(); }

  /// Throws the error of a release that the device has refused, if there was one: once, or for good
  /// when a slot is lost.
  void rethrow_poison() { refused_.rethrow(); }

 private:
  static std::size_t bytes_of(const batch_layout<Record>& layout, std::size_t depth) {
    constexpr auto most = (std::numeric_limits<std::size_t>::max)();
    if (layout.bytes() <= most / depth) return layout.bytes() * depth;
    throw out_of_memory("device", most,
                        std::to_string(depth) + " slots of " + std::to_string(layout.bytes()) +
                            " bytes are more than an address can count: lower depth or the size of "
                            "a batch");
  }

  struct extra_stream {
    std::optional<stream_ref> stream;
    typename Device::event_type released;
  };

  struct state {
    typename Device::event_type copied;
    typename Device::event_type released;
    std::vector<extra_stream> extras;
    std::size_t extras_used = 0;
    batch_info info;
    [[no_unique_address]] detail::lease_guard lease;  // until the batch is handed out
    std::optional<std::uint64_t> uses;                // of its stream by then, in a checked build
    std::atomic<bool> is_released{true};
  };

  void wait_for_release(state& to, stream_ref stream) {
    device_.wait(stream, to.released);
    for (std::size_t i = 0; i < to.extras_used; ++i) device_.wait(stream, to.extras[i].released);
    to.extras_used = 0;
  }

  /// How often something has been done to a stream by which the host may know how far it is;
  /// nothing for a stream that does not count, as the calling thread.
  static std::optional<std::uint64_t> uses_of([[maybe_unused]] stream_ref stream) noexcept {
    if constexpr (requires {
                    { stream.uses() } -> std::same_as<std::optional<std::uint64_t>>;
                  }) {
      return stream.uses();
    } else {
      return std::nullopt;
    }
  }

  /// In a checked build: the lease of what was copied begins, and `stream` gets to its arrival
  /// before the record of `copied`.
  static void note_arrival([[maybe_unused]] state& to, [[maybe_unused]] const batch_info& info,
                           [[maybe_unused]] stream_ref stream) {
    if constexpr (detail::checked) {
      to.lease.end();  // of a copy whose record was refused
      to.lease = detail::lease_guard{info.epoch, info.index, stream};
    }
  }

  static void occupy(state& to, const batch_info& info) noexcept {
    to.info = info;
    to.is_released.store(false, std::memory_order_relaxed);  // the issuer reads it itself
  }

  void record_usable(typename Device::event_type& event, stream_ref stream) {
    device_.require_usable(stream);
    device_.record(event, stream);
  }

  /// Waits for work; whether it is over then.
  template <class StreamOrEvent>
  bool settle(StreamOrEvent&& work) noexcept {
    try {
      device_.synchronize(work);
      return true;
    } catch (...) {  // most likely a device in error, which does no work any more
      return false;
    }
  }

  Device device_;
  batch_layout<Record> layout_;
  slab<Device> memory_;
  typename Device::stream_type copy_stream_;
  std::vector<state> slots_;
  detail::refused_releases refused_;
  sequence releases_;  // moves after each release, for a consumer that waits for one
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
