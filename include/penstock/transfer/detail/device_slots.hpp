// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/memory/support/fresh_addresses.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/detail/device_timer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A batch whose source has given each sample a word.
template <class Batch>
concept has_tags = requires(const Batch& batch) {
  { batch.tags() } -> std::convertible_to<std::span<const std::uint64_t>>;
};

/// How often something has been done to a stream by which the host may know how far it is; nothing
/// for a stream that does not count, as the calling thread.
template <class StreamRef>
[[nodiscard]] std::optional<std::uint64_t> uses_of([[maybe_unused]] StreamRef stream) noexcept {
  if constexpr (requires {
                  { stream.uses() } -> std::same_as<std::optional<std::uint64_t>>;
                }) {
    return stream.uses();
  } else {
    return std::nullopt;
  }
}

/// Whether `stream` is the calling thread: then the loop's body is the step.
template <class Device>
[[nodiscard]] bool is_body(const Device& device, typename Device::stream_ref stream) noexcept {
  if constexpr (requires {
                  { stream == device.inline_stream() } -> std::convertible_to<bool>;
                }) {
    return stream == device.inline_stream();
  } else {
    return false;
  }
}

/// Whether a batch in host memory can mark the end of copies for both sides.
template <class HostBatch, class Device>
inline constexpr bool shares_mark = requires(HostBatch& from, typename Device::stream_ref stream) {
  { from.mark_copies(stream) } -> std::same_as<shared_event<typename Device::event_type>*>;
  from.release_behind(from.mark_copies(stream));
};

/// What is known of one device slot: the batch in it, and the events that order the streams which
/// fill and use it. The feed's thread fills a slot that is released; whoever ends its lease
/// releases it.
template <class Device>
struct device_slot {
  using stream_ref = typename Device::stream_ref;
  using event_type = typename Device::event_type;

  struct extra_stream {
    std::optional<stream_ref> stream;
    event_type released;
  };

  event_type copied;  // the slot is filled, unless there is a mark
  // Of its copy, until the lease ends. Host slots wait for it too.
  typename shared_event<event_type>::ref mark;
  event_type released;                // its lease's stream is past it, unless it ended with others:
  bool is_released_together = false;  // then the ring's event says so
  std::vector<extra_stream> extras;   // so are those that it was also used on
  std::size_t extras_used = 0;
  std::byte* data = nullptr;  // its memory, or where its batch lies
  [[no_unique_address]] typename slot_addresses<Device>::one address;  // of its memory
  batch_info info;
  std::vector<std::uint64_t>
      tags;  // words of its samples: copied, as the host's memory is refilled
             // earlier; none where the source gives none
  std::optional<stream_ref> filled_by;
  [[no_unique_address]] lease_guard lease;  // until the batch is handed out
  std::optional<std::uint64_t> uses;        // of its stream by then, in a checked build
  // Invariant: true from the end of a lease, after its records and all that the lease did, to the
  // next copy; stored with release, and acquired by the feed's thread before it touches the slot.
  std::atomic<bool> is_released{true};

  /// Makes the events. Throws what the device throws.
  void make_events(const Device& device) {
    copied = device.make_event(event_wait::by_streams);
    released = device.make_event(event_wait::by_streams);
  }

  /// What is recorded where the slot is filled.
  [[nodiscard]] const event_type& arrival() const noexcept { return mark ? mark->event() : copied; }

  /// The slot is for this batch from now on.
  void take(const batch_info& held) noexcept {
    info = held;
    is_released.store(false, std::memory_order_relaxed);  // the feed's thread reads it itself
  }
  /// Nothing came of it, and no stream uses the slot.
  void put_back() noexcept {
    mark.reset();
    is_released.store(true, std::memory_order_relaxed);  // as above
  }

  /// In a checked build: the lease of what lies here begins. Where that is copied, `filler` gets to
  /// its arrival before the record of that.
  template <class... Filler>
  void note_arrival([[maybe_unused]] Filler... filler) {
    if constexpr (checked) {
      lease.end();  // of a copy whose record was refused
      lease = lease_guard{info.epoch, info.batch, filler...};
    }
  }

  /// In a checked build: `ended` is over for the host, and for each stream after the work that it
  /// has been given by now; the last one does `then` to the slot's memory. Where an exception ends
  /// it, the body may not have come to its use of the stream.
  template <class Guard, class Then>
  void end(Guard& ended, stream_ref stream, const Then& then) const noexcept {
    if (ended.was_seen_in_body() && extras_used == 0 && uses && uses == uses_of(stream) &&
        std::uncaught_exceptions() == 0) {
      ended.fail(
          "a thread took its data, but the feed was given a stream, which nobody has used since: "
          "nothing has waited for the copy. Leave the stream out (transfer feed{loader}) where the "
          "loop's body is the step, or synchronise first");
    }
    const auto last = ended.end_behind(1 + extras_used);
    last.behind(stream, then);
    for (std::size_t i = 0; i < extras_used; ++i) last.behind(*extras[i].stream, then);
  }

  /// Makes `stream`, which fills the slot next, wait for all who have used it.
  void wait_for_release(const Device& device, stream_ref stream) {
    device.wait(stream, released);
    for (std::size_t i = 0; i < extras_used; ++i) device.wait(stream, extras[i].released);
    extras_used = 0;
  }

  /// Records that the slot is released after what `stream` and the extra ones have been given.
  void record_release(const Device& device, stream_ref stream) {
    record_usable(device, released, stream);
    for (std::size_t i = 0; i < extras_used; ++i) {
      record_usable(device, extras[i].released, *extras[i].stream);
    }
  }

  /// Waits for them instead; whether they are idle then.
  [[nodiscard]] bool settle_users(const Device& device, stream_ref stream) noexcept {
    bool is_idle = settle(device, stream);
    for (std::size_t i = 0; i < extras_used; ++i) {
      is_idle = settle(device, *extras[i].stream) && is_idle;
    }
    extras_used = 0;
    return is_idle;
  }

  /// Waits for all that fills and uses the slot: its memory goes.
  void settle_all(const Device& device) noexcept {
    settle(device, copied);
    if (mark) settle(device, mark->event());
    settle(device, released);
    for (auto& extra : extras) settle(device, extra.released);
  }

  /// Whether the release waits for `stream` beside the lease's own.
  [[nodiscard]] bool is_extra(stream_ref stream) const noexcept {
    for (std::size_t i = 0; i < extras_used; ++i) {
      if (*extras[i].stream == stream) return true;
    }
    return false;
  }

  /// The release shall wait for `stream` too. Allocates an event the first time.
  void also_release_after(const Device& device, stream_ref stream) {
    if (extras_used == extras.size()) {
      extras.push_back({std::nullopt, device.make_event(event_wait::by_streams)});
    }
    extras[extras_used].stream = stream;
    ++extras_used;
  }

 private:
  static void record_usable(const Device& device, event_type& event, stream_ref stream) {
    require_still_usable(device, stream);
    device.record(event, stream);
  }
};

/// Queues the copy of the first `bytes` bytes of a batch in host memory to `to` in `stream`. Where
/// the batch says that its memory is not page-locked, by `pinned()`, a device that can copy from
/// such memory in a way of its own does that. Throws what the device throws. Inline, as each call
/// costs a batch instructions.
template <class Device, class HostBatch>
inline void copy_from_host(const Device& device, void* to, const HostBatch& from, std::size_t bytes,
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

/// The exceptions of leases whose end the device refused to record, on their way from the threads
/// that ended them to the consumer. Any thread may note one while the consumer asks.
class refused_releases {
 public:
  /// A release was refused with `error`. Of several that are not asked for the first one is kept;
  /// that of a lost slot, which is never used again, permanently.
  void note(std::exception_ptr error, bool is_slot_lost) noexcept {
    const std::lock_guard lock{mutex_};
    auto& kept = is_slot_lost ? sticky_error_ : pending_error_;
    if (kept == nullptr) kept = std::move(error);
    any_.store(true, std::memory_order_release);
  }

  /// Whether `rethrow` would throw.
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_acquire); }

  /// Whether a slot is lost.
  [[nodiscard]] bool has_lost_slot() noexcept {
    const std::lock_guard lock{mutex_};
    return sticky_error_ != nullptr;
  }

  /// Throws what was noted: once, or for good where a slot is lost.
  void rethrow() {
    if (!any()) return;
    std::exception_ptr error;
    {
      const std::lock_guard lock{mutex_};
      error = sticky_error_ != nullptr ? sticky_error_ : std::exchange(pending_error_, nullptr);
      any_.store(sticky_error_ != nullptr, std::memory_order_relaxed);
    }
    if (error) std::rethrow_exception(error);
  }

 private:
  std::mutex mutex_;  // guards the two below
  std::exception_ptr pending_error_;
  std::exception_ptr sticky_error_;
  // Invariant: written under the mutex, true while one of the two is there: a look that is cheap.
  std::atomic<bool> any_{false};
};

/// A batch in host memory, and the device slot that it goes into.
template <class HostBatch>
struct slot_filling {
  std::size_t slot;
  HostBatch from;
};

/// The ring of device slots of so many bytes, whatever lies in them: memory at fixed addresses,
/// with the events that order their use, and the copy stream. Lives until the last lease is gone.
///
/// Or the slots have no memory, and each is the host slot of its batch (`holds_host`): it keeps the
/// batch until the lease ends, and gives it back after the work that the lease's streams have been
/// given. Invariant: the feed's thread puts the batch there while `is_released` is false, and who
/// ends the lease takes it out before that is true.
///
/// Copies run on one stream. It and that of the transforms each count on their own waits alone.
///
/// Copies that are queued together share the events around them. Their end is one mark, recorded
/// after the last of them. Leases that end one after the other on the feed's stream (`end_later`)
/// are released by one record, made when the next copies are queued (`release_ended`), for which
/// the copies wait once.
template <device Device>
class device_slots {
  using slot_type = device_slot<Device>;

 public:
  using stream_ref = typename Device::stream_ref;
  lease_tracks leases;  ///< what records them, one at a time of each slot
  sample_lists lists;   ///< which samples the slots hold, where that is asked for

  /// `depth` slots for batches of `layout`, on `device`, of which there may be `most` later; with
  /// `in_host` they are the host's. Throws `out_of_memory`, and what the device throws.
  template <record_type Record>
  device_slots(const Device& device, const batch_layout<Record>& layout, std::size_t depth,
               std::size_t most, bool in_host = false)
      : device_slots(device, slot_layout{layout}, depth, most, in_host) {
    if (!in_host) memory_.front().addresses().name_fields(layout);
  }
  device_slots(device_slots&&) = delete;

  /// The memory goes, and the host slots that lost slots still hold are refilled: no copy may still
  /// write them, no kernel still read them.
  ~device_slots();

  /// Where a batch's fields lie in a slot.
  [[nodiscard]] const slot_layout& layout() const noexcept { return layout_; }
  /// The device whose memory it is.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// How many slots are filled by turns, and how many there may be.
  [[nodiscard]] std::size_t count() const noexcept { return open_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t most() const noexcept { return slots_.size(); }
  /// How many bytes all slots take.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return holds_host_ ? 0 : made() * layout_.bytes();
  }
  /// The first byte of a slot, on the device.
  [[nodiscard]] std::byte* data(std::size_t slot) const noexcept { return slots_[slot].data; }

  /// The number of the memory that `slot` has: the same number, the same address.
  [[nodiscard]] std::size_t number(std::size_t slot) const noexcept {
    return holds_host() ? hosts_[slot].slot() : slot;
  }

  /// Fills `count` slots by turns from now on, of the `most`, or as many as the device has room
  /// for. For the thread that fills them. Throws what the device throws.
  void open(std::size_t count);

  /// Whether each slot is the host slot of its batch.
  [[nodiscard]] bool holds_host() const noexcept { return holds_host_; }

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

  /// The slot, which is free, is for this batch. For the thread that fills it.
  void take(std::size_t slot, const batch_info& batch) noexcept { slots_[slot].take(batch); }
  /// It is for none, and no stream uses it.
  void put_back(std::size_t slot) noexcept { slots_[slot].put_back(); }

  /// Queues the copies of some batches into their slots, each after the release of the slot's
  /// previous batch, and gives the host memory back after them. Does so within `around`, which is
  /// given each batch with its slot and what queues its copy. Blocks nothing. Throws what
  /// the device throws; slots and batches are free again then, after whatever was queued.
  template <class HostBatch, class Around>
  void copy_in(std::span<slot_filling<HostBatch>> batches, const Around& around) {
    if constexpr (is_host_lease<HostBatch, Device>) {
      if (holds_host()) return hold(batches, around);
    }
    const stream_ref stream = copies_;
    bool is_copying = false;
    try {
      for (auto& one : batches) {
        slot_type& to = slots_[one.slot];
        around(one, [&] {
          wait_for_release(to, stream, copies_know_ended_);
          copy(to.data, one.from, layout_.used_bytes(to.info.size, one.from.data()), stream);
        });
        to.filled_by = stream;
        is_copying = true;
      }
      for (const auto& one : batches) slots_[one.slot].note_arrival(stream);
      mark_arrivals(batches, stream);
    } catch (...) {
      if (is_copying) settle(device_, stream);  // they may run, and their memory is refilled next
      for (const auto& one : batches) put_back(one.slot);
      throw;
    }
  }

  /// Queues the copies by way of `stage`, which takes them, and on a stream of its own makes of
  /// each what its slot gets. A copy does not wait for the slot's release but for the transform
  /// that has read its place in the stage, and it gives the host memory back before the transform
  /// has run. Where the transform reads the host's memory there is no copy, and it is given back
  /// afterwards.
  template <class HostBatch, class Stage, class Around>
  void copy_in(std::span<slot_filling<HostBatch>> batches, Stage& stage, const Around& around) {
    if (stage.reads_host()) return transform_in(batches, stage, around);
    const stream_ref copies = copies_;
    const stream_ref transforms = stage.stream();
    bool is_copying = false;
    const auto queue = [&](slot_type& to, HostBatch& from) {
      // The slot may have been filled once more since: its event marks a later transform then, and
      // the copy waits for that. So it is with a depth of 1.
      if (const auto reader = stage.reader()) device_.wait(copies, slots_[*reader].copied);
      copy(stage.data(), from, stage.in_layout().used_bytes(to.info.size, from.data()), copies);
      is_copying = true;
      stage.wait_for_copy(from, copies);
      wait_for_release(to, transforms, transforms_know_ended_);
      stage.enqueue(stage.data(), to.data, to.info);
      to.note_arrival(transforms);
      device_.record(to.copied, transforms);
    };
    try {
      for (auto& one : batches) {
        slot_type& to = slots_[one.slot];
        around(one, [&] { queue(to, one.from); });
        stage.note_reader(one.slot);
        to.filled_by = transforms;
      }
    } catch (...) {
      if (is_copying) settle(device_, copies);      // as above
      if (is_copying) settle(device_, transforms);  // nothing else marks the end of what was queued
      for (const auto& one : batches) put_back(one.slot);
      throw;
    }
  }

  /// One batch by itself.
  template <class HostBatch, class... Stage>
  void copy_in(std::size_t slot, HostBatch&& from, Stage&... stage) {
    slot_filling<HostBatch&> one{slot, from};
    take(slot, from.info());
    copy_in(std::span{&one, 1}, stage..., [](const auto&, const auto& queue) { queue(); });
  }

  /// Makes `stream`, which is usable, wait for what fills `slot`.
  void wait_for_copy(std::size_t slot, stream_ref stream) {
    device_.wait(stream, slots_[slot].arrival());
  }
  /// Whether that will block the calling thread, which `stream` is then.
  [[nodiscard]] bool will_block(std::size_t slot, stream_ref stream) const {
    return is_body(device_, stream) && !device_.is_complete(slots_[slot].arrival());
  }
  /// Which batch the slot holds.
  [[nodiscard]] const batch_info& info(std::size_t slot) const noexcept {
    return slots_[slot].info;
  }
  /// The words of its samples. The feed's thread keeps them, before the copy.
  [[nodiscard]] std::vector<std::uint64_t>& tags(std::size_t slot) noexcept {
    return slots_[slot].tags;
  }

  /// What a checked build watches of the lease of `slot`, which is handed to `stream` now.
  [[nodiscard]] lease_guard hand_out(std::size_t slot,
                                     [[maybe_unused]] stream_ref stream) noexcept {
    leases.begin(slot);
    if constexpr (checked) {
      if (!holds_host_) {  // else there is no copy that a stream has to wait for
        slots_[slot].address.name_batch(slots_[slot].info);
        slots_[slot].uses = uses_of(stream);
      }
    }
    return std::move(slots_[slot].lease);
  }

  /// Before `release`: `lease` is over for the host, which a trace records; in a checked build it
  /// is so for each stream after the work that it has been given by now.
  void end([[maybe_unused]] lease_guard& lease, [[maybe_unused]] std::size_t slot,
           [[maybe_unused]] stream_ref stream) noexcept {
    leases.end(slot, slots_[slot].info);
    if constexpr (checked) {
      slot_type& ended = slots_[slot];
      if (holds_host_) return ended.end(lease, stream, []() noexcept {});
      // What comes into the slot next lies elsewhere, if it may.
      const auto left = ended.address.move(ended.data);
      ended.end(lease, stream, [left, next = ended.data, bytes = layout_.bytes()]() noexcept {
        left.close();
        poison(next, bytes);
      });
    }
  }

  /// In a checked build: the loop's body was left, maybe before it came to its use of the stream.
  void note_left([[maybe_unused]] std::size_t slot) noexcept {
    if constexpr (checked) slots_[slot].uses.reset();
  }

  /// Whether the release of `slot` waits for `stream` beside the lease's own.
  [[nodiscard]] bool is_extra(std::size_t slot, stream_ref stream) const noexcept {
    return slots_[slot].is_extra(stream);
  }

  /// The lease of `slot` ends: what fills it next waits for all that `stream` has been given.
  /// Where the device refuses the record the work is waited for here, and `rethrow_poison` tells;
  /// where it refuses that as well, nothing tells when the slot is free, and it is lost.
  void release(std::size_t slot, stream_ref stream) noexcept;

  /// As `release`, for a lease of the feed's stream, on the thread that fills the slots: what the
  /// stream has been given is recorded later, by `release_ended`, for several such leases at once.
  /// Whether the stream is usable is asked here.
  void end_later(std::size_t slot, stream_ref stream) noexcept;

  /// Records the release of what `end_later` has ended, all on `stream`; whether that is usable has
  /// been asked just now (`is_asked`), or is asked here. Where the device refuses it, as `release`.
  void release_ended(stream_ref stream, bool is_asked) noexcept;

  /// Gives a slot back that was filled and never handed out.
  void discard(std::size_t slot) noexcept;

  /// Makes `stream`, which is new to the feed, wait for what fills `slot`, and its release, of a
  /// lease of `own`, wait for `stream` too. Allocates an event the first time. Throws what the
  /// device throws.
  void also_used_on(std::size_t slot, stream_ref stream, stream_ref own);

  /// Whether `rethrow_poison` would throw.
  [[nodiscard]] bool has_error() const noexcept { return refused_.any(); }
  /// Throws the error of a release that the device has refused, if there was one: once, or for good
  /// when a slot is lost.
  void rethrow_poison() { refused_.rethrow(); }

 private:
  device_slots(const Device& device, slot_layout layout, std::size_t depth, std::size_t most,
               bool in_host);

  /// Takes memory for so many more slots, in one piece, at addresses that stay, but for
  /// `fresh_addresses`. Throws `out_of_memory`.
  void add(std::size_t count);
  /// How many there are. From any thread, as `bytes`.
  [[nodiscard]] std::size_t made() const noexcept { return made_.load(std::memory_order_relaxed); }

  /// The batches stay in their host slots.
  template <class HostBatch, class Around>
  void hold(std::span<slot_filling<HostBatch>> batches, const Around& around) {
    try {
      for (auto& one : batches) {
        slot_type& to = slots_[one.slot];
        around(one, [&] { to.note_arrival(); });
        to.data = one.from.data();
      }
    } catch (...) {
      for (const auto& one : batches) put_back(one.slot);
      throw;
    }
    for (auto& [slot, from] : batches) hosts_[slot] = std::move(from);
  }
  /// Gives the host slot that `slot` is back, after all work that `stream`, and those that it was
  /// also used on, have been given. Throws what the device throws.
  void give_back_host(std::size_t slot, stream_ref stream) {
    slot_type& from = slots_[slot];
    if (from.extras_used == 0) return hosts_[slot].release_after(stream);
    from.record_release(device_, stream);
    const stream_ref after_all = copies_;
    from.wait_for_release(device_, after_all);
    hosts_[slot].release_after(after_all);
  }

  /// Gives it back at once.
  void drop_host(std::size_t slot) noexcept { hosts_[slot] = {}; }

  /// Queues transforms of the batches in their host slots.
  template <class HostBatch, class Stage, class Around>
  void transform_in(std::span<slot_filling<HostBatch>> batches, Stage& stage,
                    const Around& around) {
    const stream_ref transforms = stage.stream();
    try {
      for (auto& one : batches) {
        slot_type& to = slots_[one.slot];
        around(one, [&] {
          wait_for_release(to, transforms, transforms_know_ended_);
          stage.enqueue(one.from.data(), to.data, to.info);
          to.note_arrival(transforms);
        });
        to.filled_by = transforms;
      }
      mark_arrivals(batches, transforms);
    } catch (...) {
      settle(device_, transforms);  // nothing else marks the end of what was queued
      for (const auto& one : batches) put_back(one.slot);
      throw;
    }
  }

  /// Marks the end of the copies that `stream` was given last, for slots and host memory, which is
  /// given back: by one record if possible.
  template <class HostBatch>
  void mark_arrivals(std::span<slot_filling<HostBatch>> batches, stream_ref stream) {
    if constexpr (shares_mark<std::remove_reference_t<HostBatch>, Device>) {
      shared_event<typename Device::event_type>* mark = nullptr;
      for (std::size_t left = batches.size(); mark == nullptr && left != 0; --left) {
        mark = batches[left - 1].from.mark_copies(stream);
      }
      if (mark != nullptr) {
        for (auto& [slot, from] : batches) {
          slots_[slot].mark = mark->hold();
          from.release_behind(mark);
        }
        return;
      }
    }
    for (auto& [slot, from] : batches) {
      device_.record(slots_[slot].copied, stream);
      from.release_after(stream);
    }
  }

  template <class HostBatch>
  void copy(std::byte* to, HostBatch& from, std::size_t bytes, stream_ref stream) {
    if (timer_ != nullptr) timer_->begin_copy(stream);
    copy_from_host(device_, to, from, bytes, stream);
    if (timer_ != nullptr) timer_->end_copy(stream);
  }

  /// Makes `stream`, which fills the slot next, wait for all who have used it.
  void wait_for_release(slot_type& to, stream_ref stream, bool& knows_ended);

  /// In a handler, of a release that the device has refused: waits for its work instead; whether
  /// that is over, or else the slot is lost.
  [[nodiscard]] bool settle_refused(slot_type& from, stream_ref stream) noexcept;
  void set_released(slot_type& from) noexcept {
    from.mark.reset();
    from.is_released_together = false;
    // Invariant: the flag goes up after the records, because a wait binds to the record at the time
    // of the call: an issuer that sees the flag waits for these records and not for older ones.
    from.is_released.store(true, std::memory_order_release);
    wake();  // after the flag: a waiter looks at it again
  }

  Device device_;
  slot_layout layout_;
  bool holds_host_;
  // Of the slots that are there from the start, and of each later one. Never moved: there is room.
  std::vector<slab<Device>> memory_;
  typename Device::stream_type copies_;
  typename Device::event_type ended_together_;  // records the releases of leases that end in turn
  bool copies_know_ended_ = true;               // they wait for its last record already
  bool transforms_know_ended_ = true;           // likewise
  std::vector<std::size_t> ended_;              // the slots of leases that have ended since
  std::vector<slot_type> slots_;                // the first `made()` are in use, or were
  std::vector<host_lease<Device>> hosts_;       // by slot, where that is the host's
  std::atomic<std::size_t> open_;               // relaxed: of the filling thread; others only ask
  std::atomic<std::size_t> made_{0};            // likewise
  refused_releases refused_;
  device_timer<Device>* timer_ = nullptr;
  waitable_counter releases_;  // moves after each release: a consumer may wait for one
};

template <device Device>
device_slots<Device>::device_slots(const Device& device, slot_layout layout, std::size_t depth,
                                   std::size_t most, bool in_host)
    : device_(device),
      layout_(std::move(layout)),
      holds_host_(in_host),
      copies_(device.make_stream()),
      ended_together_(device.make_event(event_wait::by_streams)),
      slots_(most),
      hosts_(in_host ? most : 0),
      open_(depth) {
  ended_.reserve(most);
  memory_.reserve(1 + most - depth);
  add(depth);
  for (std::size_t slot = 0; slot < depth; ++slot) slots_[slot].make_events(device);
}

template <device Device>
device_slots<Device>::~device_slots() {
  for (std::size_t slot = 0; slot < made(); ++slot) slots_[slot].settle_all(device_);
  settle(device_, ended_together_);
  // No event tells when a lost slot is free, and its stream may be gone.
  if (refused_.has_lost_slot()) settle_everything(device_);
}

template <device Device>
void device_slots<Device>::open(std::size_t count) {
  while (made() < count) {
    slots_[made()].make_events(device_);
    try {
      add(1);
    } catch (const out_of_memory&) {
      break;
    }
  }
  open_.store((std::min)(count, made()), std::memory_order_relaxed);
}

template <device Device>
void device_slots<Device>::add(std::size_t count) {
  const std::size_t first = made();
  if (!holds_host_) {
    const std::size_t bytes = layout_.bytes();
    slab<Device> piece{device_, bytes_of_slots("device", bytes, count), memory_kind::device, bytes};
    if (first != 0) piece.addresses().name_fields_as(memory_.front().addresses());
    slab<Device>& kept = memory_.emplace_back(std::move(piece));
    for (std::size_t i = 0; i < count; ++i) {
      slots_[first + i].data = kept.slot(i, bytes);
      slots_[first + i].address = {kept.addresses(), i};
    }
  }
  made_.store(first + count, std::memory_order_relaxed);
}

template <device Device>
void device_slots<Device>::also_used_on(std::size_t slot, stream_ref stream, stream_ref own) {
  device_.require_usable(stream);
  if (!holds_host_) device_.wait(stream, slots_[slot].arrival());
  if constexpr (std::equality_comparable<stream_ref>) {
    if (stream == own || slots_[slot].is_extra(stream)) return;
  }
  slots_[slot].also_release_after(device_, stream);
}

template <device Device>
void device_slots<Device>::release(std::size_t slot, stream_ref stream) noexcept {
  slot_type& from = slots_[slot];
  try {
    if (holds_host_) {
      give_back_host(slot, stream);
    } else {
      from.record_release(device_, stream);
    }
  } catch (...) {
    if (!settle_refused(from, stream)) return;
    if (holds_host_) drop_host(slot);
  }
  set_released(from);
}

template <device Device>
void device_slots<Device>::end_later(std::size_t slot, stream_ref stream) noexcept {
  slot_type& from = slots_[slot];
  if (from.extras_used != 0) return release(slot, stream);
  try {
    require_still_usable(device_, stream);
  } catch (...) {
    if (settle_refused(from, stream)) set_released(from);
    return;
  }
  from.mark.reset();
  ended_.push_back(slot);
}

template <device Device>
void device_slots<Device>::release_ended(stream_ref stream, bool is_asked) noexcept {
  if (ended_.empty()) return;
  bool is_idle = true;
  try {
    if (!is_asked) require_still_usable(device_, stream);
    device_.record(ended_together_, stream);
    copies_know_ended_ = false;
    transforms_know_ended_ = false;
  } catch (...) {
    const auto refusal = std::current_exception();
    is_idle = settle(device_, stream);
    refused_.note(refusal, !is_idle);
  }
  for (const std::size_t slot : ended_) {
    if (!is_idle) break;
    // Invariant: as in `release`, the flag goes up after the record.
    slots_[slot].is_released_together = true;
    slots_[slot].is_released.store(true, std::memory_order_relaxed);  // this thread reads it
  }
  ended_.clear();
}

template <device Device>
void device_slots<Device>::discard(std::size_t slot) noexcept {
  slots_[slot].lease.end();
  if (!holds_host_) return release(slot, *slots_[slot].filled_by);
  drop_host(slot);  // nothing has used it
  set_released(slots_[slot]);
}

template <device Device>
bool device_slots<Device>::settle_refused(slot_type& from, stream_ref stream) noexcept {
  const auto refusal = std::current_exception();
  // No event tells when this work is done, and the memory may go with this lease.
  const bool is_idle = from.settle_users(device_, stream);
  refused_.note(refusal, !is_idle);
  if (!is_idle) wake();
  return is_idle;
}

template <device Device>
void device_slots<Device>::wait_for_release(slot_type& to, stream_ref stream, bool& knows_ended) {
  if (!to.is_released_together) return to.wait_for_release(device_, stream);
  // Invariant: the event is recorded on one stream, by this thread, which alone waits for it. So
  // its last record, which this waits for, comes after that which released the slot.
  if (!knows_ended) device_.wait(stream, ended_together_);
  knows_ended = true;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
