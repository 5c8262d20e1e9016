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

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/stream_timeline.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/memory/support/host_slots.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/memory/support/slot_ring.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/threads/support/atomics.hpp>
#include <penstock/threads/support/waitable_counter.hpp>
#include <penstock/transfer/detail/device_timer.hpp>
#include <penstock/transfer/detail/transform_stage.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The slots of `results` to which the step of a batch writes, each as the owner and the address.
using noted_results = std::vector<std::pair<const void*, const void*>>;

/// Returns the number of host calls on `stream` that may reveal its progress. Returns nothing for a
/// stream that does not count them, such as the calling thread.
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

/// Returns true if a batch in host memory can be released at a point of the feed timeline.
template <class HostBatch, class Device>
inline constexpr bool releases_at_points =
    requires(HostBatch& from, const std::shared_ptr<fill_timeline<Device>>& copies) {
      from.release_after(copies, typename fill_timeline<Device>::point{});
    };

/// Releases host memory, which is free when `copies` has reached `at`. If the batch cannot be
/// released at points, releases it after the work on the stream of `copies`, and propagates errors
/// from the device.
template <class HostBatch, class Device>
void release_host(HostBatch& from, const std::shared_ptr<fill_timeline<Device>>& copies,
                  typename fill_timeline<Device>::point at) {
  if constexpr (releases_at_points<HostBatch, Device>) {
    from.release_after(copies, at);
  } else {
    from.release_after(copies->stream());
  }
}

/// The state of one device slot: the batch in the slot, and the points that order the streams that
/// fill and use the slot. The feed thread fills the slot after its release. The thread that ends
/// the lease releases the slot.
template <class Device>
struct device_slot {
  using stream_ref = typename Device::stream_ref;
  using event_type = typename Device::event_type;
  using timeline = fill_timeline<Device>;
  using point = typename timeline::point;

  struct extra_stream {
    std::optional<stream_ref> stream;
    event_type released;
  };

  std::optional<stream_ref> handed_to;  // stream of the lease
  timeline* filled_by = nullptr;        // timeline of the work that fills the slot
  point filled_at = 0;                  // point of `filled_by` at which the slot is filled
  point released_at = 0;                // point of the consumer stream at which the slot is free
  point host_read_at = 0;               // point at which the retained host slot was read
  std::vector<extra_stream> extras;     // end of the lease on each additional stream
  std::size_t extras_used = 0;
  std::byte* data = nullptr;            // memory of the slot, or of its batch in host memory
  const slot_layout* layout = nullptr;  // layout at `data`; valid as long as the memory
  batch_info info;
  noted_results results;  // results that the step of the batch writes
  std::vector<std::uint64_t>
      tags;  // a word per sample, or empty; copied, because the host slot is refilled earlier
  [[no_unique_address]] lease_guard lease;  // stored here until the batch is delivered
  std::optional<std::uint64_t> uses;        // checked build: `uses_of` at the start of the lease
  // Invariant: true from the end of a lease to the next copy. The thread that ends the lease stores
  // true with release, after the event records and all accesses of the lease. The feed thread loads
  // the flag with acquire before it accesses the slot.
  std::atomic<bool> is_released{true};

  /// Reserves the slot for the batch `held`.
  void take(const batch_info& held) noexcept {
    info = held;
    results.clear();
    // Relaxed ordering suffices, because no other thread reads the flag now.
    is_released.store(false, std::memory_order_relaxed);
  }
  /// Records that the slot is filled when `fills` has reached `at`.
  void fill(timeline& fills, point at) noexcept {
    filled_by = &fills;
    filled_at = at;
  }
  /// Releases the slot after a failure. No stream may be using the slot.
  void put_back() noexcept {
    // Relaxed ordering suffices, because no other thread reads the flag now.
    is_released.store(true, std::memory_order_relaxed);
  }

  /// Begins the lease of the batch in the slot in a checked build. For a batch that is copied,
  /// `filler` is the stream that fills the slot. The stream marks the data as complete before the
  /// end of the copy is recorded.
  template <class... Filler>
  void record_arrival([[maybe_unused]] Filler... filler) {
    if constexpr (checked) {
      lease.end();  // ends the lease of a failed copy
      lease = lease_guard{info.epoch, info.batch, filler...};
    }
  }

  /// Ends `ended` in a checked build: immediately on the host, and on each stream of the lease
  /// after the work currently queued there. The last stream applies `then` to the memory of the
  /// slot. If an exception ended the lease, the body may not have used the stream yet.
  template <class Guard, class Then>
  void end(Guard& ended, const Then& then) const noexcept {
    if (ended.was_seen_in_body() && extras_used == 0 && uses && uses == uses_of(*handed_to) &&
        std::uncaught_exceptions() == 0) {
      ended.fail(
          "a thread read its data, but the feed has a stream, which has not been used since, so "
          "nothing has waited for the copy. Omit the stream (transfer feed{loader}) if the loop's "
          "body is the step, or synchronize first");
    }
    const auto last = ended.end_behind(1 + extras_used);
    last.behind(*handed_to, then);
    for (std::size_t i = 0; i < extras_used; ++i) last.behind(*extras[i].stream, then);
  }

  /// Makes `stream` wait for the extra streams that have used the slot.
  void wait_for_extras(const Device& device, stream_ref stream) {
    for (std::size_t i = 0; i < extras_used; ++i) device.wait(stream, extras[i].released);
    extras_used = 0;
  }
  /// Records the end of the lease on the extra streams.
  void record_extras(const Device& device) {
    for (std::size_t i = 0; i < extras_used; ++i) {
      require_still_usable(device, *extras[i].stream);
      device.record(extras[i].released, *extras[i].stream);
    }
  }
  /// Waits for the extra streams after a failed record. Returns true if their work has ended.
  [[nodiscard]] bool synchronize_extras(const Device& device) noexcept {
    bool is_idle = true;
    for (std::size_t i = 0; i < extras_used; ++i) {
      is_idle = try_synchronize(device, *extras[i].stream) && is_idle;
    }
    extras_used = 0;
    return is_idle;
  }

  /// Waits for all work that fills the slot and for the extra streams, before the memory is freed.
  /// Returns true if that work has ended.
  [[nodiscard]] bool settle_all(const Device& device) const noexcept {
    bool is_idle = filled_by == nullptr || filled_by->try_synchronize(filled_at);
    for (const auto& extra : extras)
      is_idle = synchronize_before_free(device, extra.released) && is_idle;
    return is_idle;
  }

  /// Returns true if the release waits for `stream` in addition to the stream of the lease.
  [[nodiscard]] bool is_extra(stream_ref stream) const noexcept {
    for (std::size_t i = 0; i < extras_used; ++i) {
      if (*extras[i].stream == stream) return true;
    }
    return false;
  }

  /// Makes the release also wait for `stream`. The first call allocates an event.
  void also_release_after(const Device& device, stream_ref stream) {
    if (extras_used == extras.size()) {
      extras.push_back({std::nullopt, device.make_event(event_wait::by_streams)});
    }
    extras[extras_used].stream = stream;
    ++extras_used;
  }
};

/// Makes later work on `stream` wait for work that still writes a batch in host memory.
template <class HostBatch, class StreamRef>
void wait_until_written([[maybe_unused]] const HostBatch& from, [[maybe_unused]] StreamRef stream) {
  if constexpr (requires { from.wait_until_written(stream); }) from.wait_until_written(stream);
}

/// Queues a copy of the first `bytes` bytes of a batch in host memory to `to` on `stream`, after
/// the work that still writes the batch. If the memory is pageable and the device has a copy
/// function for pageable memory, uses that function. Propagates errors from the device. Inline, to
/// save instructions for each batch.
template <class Device, class HostBatch>
inline void copy_from_host(const Device& device, void* to, const HostBatch& from, std::size_t bytes,
                           typename Device::stream_ref stream) {
  wait_until_written(from, stream);
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

/// The errors of leases whose end could not be recorded. The threads that end the leases record the
/// errors, and the consumer rethrows them. Any thread may call `record` at any time.
class release_errors {
 public:
  /// Records that a release failed with `error`. Stores the first error until it is rethrown. The
  /// error of a lost slot is stored permanently, because the slot is never used again.
  void record(std::exception_ptr error, bool is_slot_lost) noexcept {
    const std::lock_guard lock{mutex_};
    auto& kept = is_slot_lost ? sticky_error_ : pending_error_;
    if (kept == nullptr) kept = std::move(error);
    any_.store(true, std::memory_order_release);
  }

  /// Returns true if `rethrow` would throw.
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_acquire); }

  /// Returns true if a slot is lost.
  [[nodiscard]] bool has_lost_slot() noexcept {
    const std::lock_guard lock{mutex_};
    return sticky_error_ != nullptr;
  }

  /// Throws the recorded error, if any. The error is thrown only once, unless a slot is lost, in
  /// which case each call throws it.
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
  std::mutex mutex_;  // guards the two errors
  std::exception_ptr pending_error_;
  std::exception_ptr sticky_error_;
  // Invariant: true if and only if an error is stored. The flag is atomic and written only under
  // the mutex, so it can be checked without locking.
  std::atomic<bool> any_{false};
};

/// A host batch that a device slot holds or retains, without the types of its source and its
/// record.
template <device Device>
class held_host : public host_slot_lease<slot_ring<Device>> {
  using base = host_slot_lease<slot_ring<Device>>;

 public:
  using base::base;

  /// Calls `slot_ring::wait_until_written`.
  void wait_until_written(typename Device::stream_ref stream) const {
    base::slots_->wait_until_written(base::slot_, stream);
  }
  /// Returns the layout of the batch, which is valid as long as the memory of the host slot.
  [[nodiscard]] const slot_layout& layout() const noexcept { return base::slots_->layout(); }
  /// Returns the batch as a view of `Record`, or `std::nullopt` if the batch has another record.
  /// The lease of the transfer checks that only one thread uses the batch.
  template <record_type Record>
  [[nodiscard]] std::optional<const_batch_view<Record>> view_as() const noexcept {
    if (!layout().template is_of<Record>()) return std::nullopt;
    return const_batch_view<Record>{base::slots_->data(base::slot_), layout().template as<Record>(),
                                    0, base::size(), base::guard_.tag()};
  }
  /// Ends the lease without releasing the slot, because work that cannot be waited for may still
  /// use the slot.
  void lose() noexcept { base::leave()->lose(); }
};

/// True if a device slot can hold or retain a `Batch`, which must be a lease of host slots, but not
/// a user-defined type derived from a lease.
template <class Batch, class Device>
inline constexpr bool is_holdable = std::same_as<Batch, host_lease<Device>>;
template <class Record, class Base, class Device>
inline constexpr bool is_holdable<lease<Record, Base>, Device> =
    std::constructible_from<held_host<Device>, Base>;

/// A batch in host memory, and the device slot that it fills.
template <class HostBatch>
struct slot_filling {
  std::size_t slot;
  HostBatch from;
};

/// A lock for short sections with rare contention. Threads enter in the order in which they call
/// `lock`. Needs fewer instructions than `std::mutex`.
class turn_lock {
 public:
  /// Enters the section after all threads that called this earlier.
  void lock() noexcept {
    const std::uint32_t mine = next_.fetch_add(1, std::memory_order_relaxed);
    if (serving_.load() != mine) [[unlikely]]
      wait_for(mine);
  }
  /// Leaves the section.
  void unlock() noexcept { serving_.advance(); }

 private:
  [[gnu::noinline]] void wait_for(std::uint32_t mine) noexcept {
    serving_.wait([mine](std::uint32_t now) { return now == mine; });
  }

  // Invariant: a thread is inside while `serving_` equals its number. A thread leaves by advancing
  // `serving_` with release. `next_` is relaxed, because it does not order other data.
  std_atomics::atomic<std::uint32_t> next_{0};
  waitable_counter serving_;
};

/// The time at which the host slot of a batch is released.
enum class host_slot_end : unsigned char {
  with_copy,      ///< after the copy or the transform has read the batch
  with_lease,     ///< when the device lease has ended and the batch was read
  with_last_use,  ///< after the work on the lease, because the device slot is the host slot
};

/// The ring of device slots for batches of any record. Owns memory at fixed addresses, the events
/// that order its use, and the copy stream. Lives until the last lease has ended.
///
/// If `holds_host()`, the slots have no memory, and each is the host slot of its batch. The slot
/// holds the batch until the lease ends, and releases it after all work queued on the streams of
/// the lease at that time. If `keeps_host()`, a slot has its own memory, retains the batch until
/// the lease ends, and releases it after its copy. Invariant: the feed thread stores the batch
/// while `is_released` is false. The thread that ends the lease removes the batch before
/// `is_released` is true.
///
/// Two timelines order the streams. A slot is filled at a point of the copies or the transforms,
/// and free at a point of the consumer stream. A slot event marks the end of a lease on each
/// additional stream.
///
/// Batches that are queued together are filled at one point. If consecutive leases end on the
/// consumer stream (`defer_release`), their slots are free at one point. `flush_releases` marks
/// that point when the next copies are queued, and the copies wait for it once.
template <device Device>
class device_slots {
  using slot_type = device_slot<Device>;

 public:
  using stream_ref = typename Device::stream_ref;
  using timeline = fill_timeline<Device>;
  using point = typename timeline::point;
  using slot_number = std::size_t;
  lease_tracks leases;  ///< traces the leases, one at a time for each slot
  sample_lists lists;   ///< sample indices of the batch in each slot, if the source lists them

  /// Creates `depth` slots for batches of `layout` on `device`, with a maximum of `max` slots
  /// later. `host_ends` specifies when host slots are released. `has_host` enables `host`.
  /// `transform` fills the slots. If it is null, batches are copied. Leases are ordered on the
  /// stream `consumer`. A lease on another stream costs an event. Throws `out_of_memory`, and
  /// errors from the device.
  device_slots(const Device& device, slot_layout layout, stream_ref consumer, std::size_t depth,
               std::size_t max, host_slot_end host_ends = host_slot_end::with_copy,
               std::shared_ptr<transform_stage<Device>> transform = {}, bool has_host = false);
  device_slots(device_slots&&) = delete;

  /// Waits for all work on the slots, and frees their memory. If waiting fails, leaks the memory
  /// and the host slots held by lost device slots, because work may still use them.
  ~device_slots();

  /// Returns the layout of a batch in a slot.
  [[nodiscard]] const slot_layout& layout() const noexcept { return layout_; }
  /// Returns the layout of the batch in `slot`. Views reference this layout, which is valid as long
  /// as the memory.
  [[nodiscard]] const slot_layout& layout_of(std::size_t slot) const noexcept {
    return *slots_[slot].layout;
  }
  /// Returns the device that owns the memory of the slots.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// Returns the number of slots in use. `max` returns the maximum number of slots.
  [[nodiscard]] std::size_t count() const noexcept { return open_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t max_count() const noexcept { return slots_.size(); }
  /// Returns the device memory used by all slots and by the staging buffers of the transform, in
  /// bytes.
  [[nodiscard]] std::size_t bytes() const noexcept {
    if (holds_host()) return 0;
    return made() * layout_.bytes() + (transform_ ? transform_->bytes() : 0);
  }
  /// Returns the address of a slot on the device.
  [[nodiscard]] std::byte* data(std::size_t slot) const noexcept { return slots_[slot].data; }

  /// Returns the memory index of `slot`. Equal indices mean equal addresses.
  [[nodiscard]] std::size_t number(std::size_t slot) const noexcept {
    return holds_host() ? hosts_[slot].slot() : slot;
  }

  /// Uses `count` of the `max` slots, or fewer if the device is out of memory. Only the thread that
  /// fills slots may call this. Propagates errors from the device, except `out_of_memory`.
  void open(std::size_t count);

  /// Returns true if each slot is the host slot of its batch.
  [[nodiscard]] bool holds_host() const noexcept {
    return host_ends_ == host_slot_end::with_last_use;
  }
  /// Returns true if each slot retains the host slot of its batch until the lease ends.
  [[nodiscard]] bool keeps_host() const noexcept { return host_ends_ == host_slot_end::with_lease; }
  /// Returns the batch in host memory that `slot` holds or retains. Only the user of the lease may
  /// call this. Throws `option_error` unless the ring was created with `has_host`.
  [[nodiscard]] const held_host<Device>& host(std::size_t slot) const {
    if (!has_host_) {
      throw_option_error(
          "keep_host",
          {"must be set in the options of the transfer before host() is called: else the "
           "host slot of a batch is refilled as soon as the batch was copied"});
    }
    return hosts_[slot];
  }

  /// Returns true if a transform computes the batches.
  [[nodiscard]] bool transforms() const noexcept { return transform_ != nullptr; }

  /// Times the copies and transforms with `timer`, and traces the transforms with `trace`. Either
  /// may be null, which disables it.
  void watch_by(trace_sink* trace, device_timer<Device>* timer) noexcept {
    timer_ = timer;
    if (transform_) transform_->watch_by(trace, timer);
  }

  /// Returns true if the lease of `slot` has ended, in which case the host may queue a new copy.
  /// Events order the copy on the device. Acquires all data recorded by the releasing thread.
  [[nodiscard]] bool is_released(std::size_t slot) const noexcept {
    return slots_[slot].is_released.load(std::memory_order_acquire);
  }

  /// Blocks until `is_over()` returns true. Evaluates it again after each release and each `wake`.
  void wait_for_release(auto is_over) const {
    releases_.wait([&](std::uint32_t) { return is_over(); });
  }
  /// Makes a thread in `wait_for_release` check again. Any thread may call this.
  void wake() noexcept { releases_.advance(); }

  /// Reserves the free `slot` for `batch`. Only the thread that fills slots may call this.
  void take(std::size_t slot, const batch_info& batch) noexcept { slots_[slot].take(batch); }
  /// Releases `slot`, which is not used by a batch or a stream.
  void put_back(std::size_t slot) noexcept { slots_[slot].put_back(); }

  /// A function that queues the work for a batch.
  template <class HostBatch>
  using queue_function = void (device_slots::*)(slot_filling<HostBatch>&);

  /// Fills the slots of `batches`, and releases the host memory after it has been read. Does not
  /// block. Calls `around` for each batch with the batch, its slot, and a function that queues the
  /// work. Each slot is filled after the release of its previous batch. Without a transform, a
  /// batch is copied or stays in its host slot. With a transform, a batch is copied to a staging
  /// buffer, and the transform fills the slot on its own stream. That copy waits for the previous
  /// transform that reads the buffer, but not for the slot. If the transform reads host memory, no
  /// copy is made.
  ///
  /// `by_transform` is `queue_transform` with a transform, and otherwise null. The feed passes this
  /// pointer so that a program without transforms does not compile the function.
  ///
  /// Propagates errors from the device and the transform. In that case, the first `filled()`
  /// batches are in their slots. The other slots and batches are free after the work queued for
  /// them. If waiting for that work fails, they are lost.
  template <class HostBatch, class Around>
  void copy_in(std::span<slot_filling<HostBatch>> batches, const Around& around,
               queue_function<HostBatch> by_transform = nullptr) {
    std::size_t queued = 0;
    const recorded_end end = record_or_wait(
        [&]() __attribute__((always_inline)) {
          for (auto& one : batches) {
            around(one, [&] {
              if (by_transform != nullptr) [[unlikely]]
                return (this->*by_transform)(one);
              queue(slots_[one.slot], one.from);
            });
            ++queued;
          }
          if (holds_host() || marks_each()) return record_filled(batches);
          const std::shared_ptr<timeline>& fills = filling();
          const auto marked = fills->mark(capture_check::done);
          marked.rethrow_error();
          for (auto& one : batches) {
            slots_[one.slot].fill(*fills, marked.at);
            end_host(one, fills, marked.at);
          }
        },
        [&] { return synchronize_filling(); });
    if (!end.error) [[likely]]
      return;
    give_up(batches, queued, end);
    end.rethrow_error();
  }
  /// Queues the transform that fills a slot. Propagates errors from the device and the transform.
  template <class HostBatch>
  void queue_transform(slot_filling<HostBatch>& one) {
    slot_type& to = slots_[one.slot];
    HostBatch& from = one.from;
    timeline& made = *transform_->made();
    const stream_ref transforms = made.stream();
    const std::byte* in = from.data();
    if (transform_->reads_host()) {
      wait_until_written(from, transforms);
    } else {
      const stream_ref copies = copies_;
      made.wait(transform_->read_at(), copies, copies_know_read_);
      in = transform_->data();
      copy(transform_->data(), from, transform_->in_layout().used_bytes(to.info.size, from.data()),
           copies);
      const auto copied = copied_->mark(capture_check::done);
      copied.rethrow_error();
      end_host(one, copied_, copied.at);
      copied_->wait(copied.at, transforms);
    }
    wait_for_release(to, transforms);
    allow(to, transforms);
    transform_->enqueue(in, to.data, to.info);
    to.record_arrival(transforms);
    if (transform_->reads_host()) return;
    const auto marked = made.mark(capture_check::done);
    marked.rethrow_error();
    to.fill(made, marked.at);
    transform_->record_read(marked.at);
  }
  /// Returns the number of batches that are in their slots after a `copy_in` that threw.
  [[nodiscard]] std::size_t filled() const noexcept { return filled_; }

  /// Fills `slot` with a single batch. Propagates errors from the device.
  template <class HostBatch>
  void copy_in(std::size_t slot, HostBatch&& from) {
    slot_filling<HostBatch&> one{slot, from};
    take(slot, from.info());
    copy_in(std::span{&one, 1}, [](const auto&, const auto& queue) { queue(); });
  }

  /// Makes `stream`, which must be usable, wait for the work that fills `slot`. If `holds_host()`,
  /// this is producer work that still writes the host slot.
  void wait_for_copy(std::size_t slot, stream_ref stream) const {
    if (holds_host()) return hosts_[slot].wait_until_written(stream);
    slots_[slot].filled_by->wait(slots_[slot].filled_at, stream);
  }
  /// Makes `stream` wait for the work that fills `slot`, unless `stream` already waits for this
  /// work. `known` is the newest point that this function has made `stream` wait for, initially 0.
  /// Only the thread that fills slots may call this.
  void wait_for_copy(std::size_t slot, stream_ref stream, point& known) const {
    slots_[slot].filled_by->wait(slots_[slot].filled_at, stream, known);
  }
  /// Returns true if no stream needs to wait for the work that fills `slot`, because the host
  /// observes that the work is done, or because the stream of `known` already waits for it. A
  /// stream wait costs more than this query: a CUDA graph after a wait starts microseconds late,
  /// even if the copy completed long ago. Queries at most one event. Propagates errors from the
  /// device. Only the thread that fills slots may call this.
  [[nodiscard]] bool is_filled(std::size_t slot, point known) const {
    const slot_type& filled = slots_[slot];
    return filled.filled_at <= known || filled.filled_by->reached(filled.filled_at);
  }
  /// Returns the description of the batch in the slot.
  [[nodiscard]] const batch_info& info(std::size_t slot) const noexcept {
    return slots_[slot].info;
  }
  /// Adds to the number of batches that were dropped before the batch in `slot`.
  void record_dropped(std::size_t slot, std::uint64_t batches) noexcept {
    slots_[slot].info.dropped += batches;
  }
  /// Returns the words of the samples in the batch. The feed thread sets them before the copy.
  [[nodiscard]] std::vector<std::uint64_t>& tags(std::size_t slot) noexcept {
    return slots_[slot].tags;
  }

  /// Begins the lease of `slot`, which is ordered on `stream`. Returns the guard of a checked
  /// build.
  [[nodiscard]] lease_guard hand_out(std::size_t slot, stream_ref stream) noexcept {
    leases.begin(slot);
    slot_type& leased = slots_[slot];
    leased.handed_to = stream;
    if constexpr (checked) {
      // A batch that the device accesses in its host slot is not copied, so no stream needs to wait
      // for a copy.
      if (!holds_host()) leased.uses = uses_of(stream);
    }
    return std::move(leased.lease);
  }
  /// Returns the stream on which the lease of `slot` is ordered.
  [[nodiscard]] stream_ref stream_of(std::size_t slot) const noexcept {
    return *slots_[slot].handed_to;
  }

  /// Ends the lease on the host before `release`, and records the end in the trace. Returns the
  /// host slot to the loader if it was retained. In a checked build, also ends the lease on each of
  /// its streams, after the work currently queued there.
  void close_lease(std::size_t slot, const batch_info& batch,
                   [[maybe_unused]] lease_guard& lease) noexcept {
    leases.end(slot, batch);
    if (keeps_host()) [[unlikely]]
      return_kept(slot);
    if constexpr (checked) {
      slot_type& ended = slots_[slot];
      if (holds_host()) return ended.end(lease, []() noexcept {});
      ended.end(lease, erased(ended));
    }
  }

  /// Records in a checked build that the loop body may have ended before it used the stream.
  void record_left([[maybe_unused]] std::size_t slot) noexcept {
    if constexpr (checked) slots_[slot].uses.reset();
  }

  /// Returns the results that the step of the batch in `slot` writes. Only the user of the lease
  /// may call this.
  [[nodiscard]] noted_results& results(std::size_t slot) noexcept { return slots_[slot].results; }

  /// Returns true if the release of `slot` waits for `stream` in addition to the stream of the
  /// lease.
  [[nodiscard]] bool is_extra(std::size_t slot, stream_ref stream) const noexcept {
    return slots_[slot].is_extra(stream);
  }

  /// Returns `slot`, whose lease has ended, to the ring. The next batch in the slot waits for all
  /// work currently queued on the stream of the lease. If recording the event fails, waits for that
  /// work, and `rethrow_poison` throws the error. If waiting fails too, the slot is lost, because
  /// the end of its use is unknown.
  void release(std::size_t slot) noexcept;

  /// Ends a lease on the consumer stream like `release`, but defers the record to `flush_releases`,
  /// which records one event for several leases. Checks that the stream is usable. Only the thread
  /// that fills slots may call this.
  void defer_release(std::size_t slot) noexcept;

  /// Marks the release of the leases that `defer_release` has ended. Handles device errors like
  /// `release`.
  void flush_releases(capture_check check) noexcept;

  /// Returns `slot`, which was filled but never delivered, to the ring.
  void discard(std::size_t slot) noexcept;

  /// Makes `stream`, which is not the stream of the lease, wait for the work that fills `slot`, and
  /// makes the release wait for `stream`. The first call allocates an event. Propagates errors from
  /// the device.
  void also_used_on(std::size_t slot, stream_ref stream);

  /// Returns true if `rethrow_poison` would throw.
  [[nodiscard]] bool has_error() const noexcept { return release_errors_.any(); }
  /// Throws the error of the first failed release, if any. The error is thrown only once, unless a
  /// slot is lost, in which case each call throws it.
  void rethrow_poison() { release_errors_.rethrow(); }

 private:
  /// Allocates `count` more slots as one contiguous block. Existing slots keep their addresses.
  /// Throws `out_of_memory` if the allocation fails.
  void add(std::size_t count);
  /// Returns the number of slots created so far. Any thread may call this and `bytes`.
  [[nodiscard]] std::size_t made() const noexcept { return made_.load(std::memory_order_relaxed); }

  /// Returns the timeline of the work that fills slots.
  [[nodiscard]] const std::shared_ptr<timeline>& filling() const noexcept {
    return transform_ ? transform_->made() : copied_;
  }
  /// Returns true if each batch is filled at a separate point. In that case, its copy and its
  /// transform are both marked, because the next batches wait for them.
  [[nodiscard]] bool marks_each() const noexcept { return transform_ && !transform_->reads_host(); }

  /// Queues the work that fills a slot.
  template <class HostBatch>
  void queue(slot_type& to, HostBatch& from) {
    if (holds_host()) return to.record_arrival();
    const stream_ref stream = copies_;
    wait_for_release(to, stream);
    allow(to, stream);
    copy(to.data, from, layout_.used_bytes(to.info.size, from.data()), stream);
    to.record_arrival(stream);
  }
  /// Waits for the work that fills slots. Returns true if the work has ended.
  [[nodiscard]] bool synchronize_filling() noexcept {
    if (holds_host()) return true;
    const bool is_copied = try_synchronize(device_, stream_ref{copies_});
    return (!transform_ || try_synchronize(device_, transform_->made()->stream())) && is_copied;
  }

  /// Records that `batches` are filled, unless a mark was made for the whole group. In that case,
  /// each batch has a separate mark, or no copy was made.
  template <class HostBatch>
  [[gnu::noinline]] void record_filled(std::span<slot_filling<HostBatch>> batches) noexcept {
    if (holds_host()) {
      for (auto& one : batches) hold(one);
    } else {
      // The consumer waits once for all batches of the group.
      const point last = slots_[batches.back().slot].filled_at;
      for (auto& one : batches) slots_[one.slot].filled_at = last;
    }
  }
  /// Uses the host slot of a batch as its device slot.
  template <class HostBatch>
  void hold([[maybe_unused]] slot_filling<HostBatch>& one) noexcept {
    if constexpr (is_holdable<HostBatch, Device>) {
      slot_type& to = slots_[one.slot];
      to.data = one.from.data();
      hosts_[one.slot] = held_host<Device>{std::move(one.from)};
      to.layout = &hosts_[one.slot].layout();
    }
  }
  /// Releases the host slot of a batch, which is read when `reads` has reached `at`, or retains it
  /// until the lease ends.
  template <class HostBatch>
  void end_host(slot_filling<HostBatch>& one, const std::shared_ptr<timeline>& reads, point at) {
    if (keeps_host()) [[unlikely]]
      return keep(one, at);
    release_host<HostBatch, Device>(one.from, reads, at);
  }
  /// Retains the host slot of a batch, which is read at the point `at`, until the lease ends.
  template <class HostBatch>
  void keep([[maybe_unused]] slot_filling<HostBatch>& one, [[maybe_unused]] point at) noexcept {
    if constexpr (is_holdable<HostBatch, Device>) {
      slots_[one.slot].host_read_at = at;
      hosts_[one.slot] = held_host<Device>{std::move(one.from)};
    }
  }
  /// Returns the host slot that `slot` retains, if any, to the loader. The host slot can be
  /// refilled after it was read, without waiting for work on the lease.
  [[gnu::noinline]] void return_kept(std::size_t slot) noexcept {
    if (!hosts_[slot]) return;
    hosts_[slot].release_after(marks_each() ? copied_ : filling(), slots_[slot].host_read_at);
  }

  /// Sets `filled()` after a failure, when `queued` batches had been queued, and frees the slots of
  /// the other batches. If the work queued for them cannot be waited for, the slots are lost. The
  /// host memory of these batches is returned in stream order, because the work may still read it.
  template <class HostBatch>
  [[gnu::cold]] void give_up(std::span<slot_filling<HostBatch>> batches, std::size_t queued,
                             const recorded_end& end) noexcept {
    // If all batches were queued, the failure came after the last copy, and the last batch counts
    // as failed.
    filled_ = (std::min)(queued, batches.size() - 1);
    if (holds_host()) {
      for (auto& one : batches.first(filled_)) hold(one);
    } else if (!marks_each()) {
      if (end.is_lost) filled_ = 0;
      for (auto& one : batches) slots_[one.slot].fill(*filling(), 0);  // the work has ended
      if (keeps_host()) {
        for (auto& one : batches.first(filled_)) keep(one, 0);
      }
    }
    if (end.is_lost) release_errors_.record(end.error, true);
    for (auto& one : batches.subspan(filled_)) {
      if (keeps_host()) return_kept(one.slot);
      if (!end.is_lost) {
        put_back(one.slot);
      } else if (one.from) {
        try {
          one.from.release_after(marks_each() ? stream_ref{copies_} : filling()->stream());
        } catch (...) {  // NOLINT: `release_errors_` has the first error
        }
      }
    }
  }
  /// Returns the host slot of `slot`, which other streams may also have used, to the loader. The
  /// host slot is free after all work recorded for `slot`.
  [[nodiscard]] recorded_end release_host_slot(std::size_t slot) noexcept {
    slot_type& from = slots_[slot];
    const stream_ref after_all = copies_;
    recorded_end end = record_or_wait([&] { from.wait_for_extras(device_, after_all); },
                                      [&] { return from.synchronize_extras(device_); });
    if (!end.error) return hosts_[slot].end_after(after_all);
    if (!end.is_lost) drop_host(slot);
    return end;
  }

  /// Returns the host slot of `slot` to the loader immediately.
  void drop_host(std::size_t slot) noexcept { hosts_[slot] = {}; }

  /// Returns the function that a checked build applies to the memory of a slot when its lease has
  /// ended on all streams. The function overwrites the memory, and AddressSanitizer reports every
  /// later use.
  [[nodiscard]] auto erased(const slot_type& ended) const noexcept {
    return [data = ended.data, bytes = layout_.bytes()]() noexcept {
      poison(data, bytes);
      forbid(data, bytes);
    };
  }
  /// In checked builds with AddressSanitizer, allows `stream` to write the next batch into the
  /// slot.
  void allow([[maybe_unused]] const slot_type& to, [[maybe_unused]] stream_ref stream) {
    if constexpr (forbids_memory && runs_host_functions<stream_ref>) {
      stream.launch(
          [data = to.data, bytes = layout_.bytes()]() noexcept { detail::allow(data, bytes); });
    }
  }

  template <class HostBatch>
  void copy(std::byte* to, HostBatch& from, std::size_t bytes, stream_ref stream) {
    if (timer_ != nullptr) timer_->begin_copy(stream);
    copy_from_host(device_, to, from, bytes, stream);
    if (timer_ != nullptr) timer_->end_copy(stream);
  }

  /// Makes `stream`, which fills the slot next, wait for all streams that have used the slot. The
  /// same stream fills all slots.
  void wait_for_release(slot_type& to, stream_ref stream) {
    consumer_.wait(to.released_at, stream, filler_knows_released_);
    to.wait_for_extras(device_, stream);
  }

  /// Returns true if the ends of leases on `stream` are points of the consumer timeline.
  [[nodiscard]] bool is_consumer([[maybe_unused]] stream_ref stream) const noexcept {
    if constexpr (std::equality_comparable<stream_ref>) {
      return stream == consumer_.stream();
    } else {
      return true;
    }
  }
  /// Implements `release` for a host slot, and for a slot that other streams have used. Not
  /// inlined, so that `release` stays small.
  [[gnu::noinline]] void release_other(std::size_t slot) noexcept;
  /// Records that `from` is free after all work currently queued on `stream` and the extra streams.
  [[nodiscard]] recorded_end record_release(slot_type& from, stream_ref stream) noexcept;
  /// Stores the error if recording failed, and releases the slot unless it is lost.
  [[gnu::noinline]] void end_release(slot_type& from, const recorded_end& end) noexcept;

  void set_released(slot_type& from) noexcept {
    // Invariant: the flag is set after the event records, because a wait uses the newest record at
    // the time of the call. A thread that sees the flag waits for these records, not for older
    // records.
    from.is_released.store(true, std::memory_order_release);
    wake();  // after the flag is set, because a waiting thread checks the flag
  }

  Device device_;
  std::shared_ptr<transform_stage<Device>> transform_;  // may be null; outlives the streams
  slot_layout layout_;
  host_slot_end host_ends_;
  bool has_host_;  // true if `host` is enabled
  // One slab for the first slots, and one slab for each later slot. The capacity is reserved, so
  // slabs are never moved.
  std::vector<slab<Device>> memory_;
  typename Device::stream_type copies_;
  std::shared_ptr<timeline> copied_;  // points of the copies, shared with host slots
  // points of the consumer stream, which are the ends of leases
  stream_timeline<Device, turn_lock> consumer_;
  point filler_knows_released_ = 0;       // point of `consumer_` that the filling stream waits for
  point copies_know_read_ = 0;            // point of the transforms that the copies wait for
  std::vector<std::size_t> ended_;        // slots of leases that have ended since the last mark
  std::size_t filled_ = 0;                // result of `filled`
  std::vector<slot_type> slots_;          // the first `made()` slots have been used
  std::vector<held_host<Device>> hosts_;  // host slot of each slot, if any
  std::atomic<std::size_t> open_;         // relaxed, because only the filling thread writes it
  std::atomic<std::size_t> made_{0};      // relaxed, because only the filling thread writes it
  release_errors release_errors_;
  device_timer<Device>* timer_ = nullptr;
  waitable_counter releases_;  // advances after each release and each `wake`
};

template <device Device>
device_slots<Device>::device_slots(const Device& device, slot_layout layout, stream_ref consumer,
                                   std::size_t depth, std::size_t max, host_slot_end host_ends,
                                   std::shared_ptr<transform_stage<Device>> transform,
                                   bool has_host)
    : device_(device),
      transform_(std::move(transform)),
      layout_(std::move(layout)),
      host_ends_(host_ends),
      has_host_(has_host),
      copies_(device.make_stream()),
      // Uses several times as many events as slots, because threads wait for the copies.
      copied_(holds_host() ? nullptr
                           : std::make_shared<timeline>(device, copies_, 4 * (max + 1),
                                                        event_wait::by_host)),
      consumer_(device, consumer, holds_host() ? 1 : max + 1, event_wait::by_streams),
      slots_(max),
      hosts_(host_ends == host_slot_end::with_copy ? 0 : max),
      open_(depth) {
  ended_.reserve(max);
  memory_.reserve(1 + max - depth);
  for (slot_type& slot : slots_) slot.results.reserve(2);
  add(depth);
}

template <device Device>
device_slots<Device>::~device_slots() {
  bool is_idle = true;
  for (std::size_t slot = 0; slot < made(); ++slot) {
    is_idle = consumer_.try_synchronize(slots_[slot].released_at) && is_idle;
    is_idle = slots_[slot].settle_all(device_) && is_idle;
  }
  // No event marks the end of the work on a lost slot, and its stream may have been destroyed.
  if (release_errors_.has_lost_slot()) is_idle = synchronize_before_free(device_) && is_idle;
  if (is_idle) return;
  for (auto& piece : memory_) piece.leak();
  for (auto& host : hosts_) {
    if (host) host.lose();
  }
}

template <device Device>
void device_slots<Device>::open(std::size_t count) {
  while (made() < count) {
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
  if (!holds_host()) {
    const auto& piece = memory_.emplace_back(device_, memory_kind::device, layout_.bytes(), count);
    for (std::size_t i = 0; i < count; ++i) {
      slots_[first + i].data = piece.slot(i);
      slots_[first + i].layout = &layout_;
    }
  }
  made_.store(first + count, std::memory_order_relaxed);
}

template <device Device>
void device_slots<Device>::also_used_on(std::size_t slot, stream_ref stream) {
  device_.require_usable(stream);
  wait_for_copy(slot, stream);
  if constexpr (std::equality_comparable<stream_ref>) {
    if (stream == stream_of(slot) || slots_[slot].is_extra(stream)) return;
  }
  slots_[slot].also_release_after(device_, stream);
}

template <device Device>
recorded_end device_slots<Device>::record_release(slot_type& from, stream_ref stream) noexcept {
  recorded_end end;
  from.released_at = 0;
  const bool is_marked = !holds_host() && is_consumer(stream);
  if (is_marked) {
    auto marked = consumer_.mark();
    if (!marked.is_lost) from.released_at = marked.at;
    end = std::move(marked);
  }
  recorded_end others = record_or_wait(
      [&] {
        if (!is_marked) from.also_release_after(device_, stream);
        from.record_extras(device_);
      },
      [&] {
        const bool is_idle = is_marked || try_synchronize(device_, stream);
        return from.synchronize_extras(device_) && is_idle;
      });
  if (!end.error) return others;
  end.is_lost = end.is_lost || others.is_lost;
  return end;
}

template <device Device>
void device_slots<Device>::release(std::size_t slot) noexcept {
  slot_type& from = slots_[slot];
  if (holds_host() || from.extras_used != 0 || !is_consumer(*from.handed_to)) [[unlikely]]
    return release_other(slot);
  const auto end = consumer_.mark();
  if (end.error) [[unlikely]] {
    from.released_at = 0;
    return end_release(from, end);
  }
  from.released_at = end.at;
  set_released(from);
}

template <device Device>
void device_slots<Device>::release_other(std::size_t slot) noexcept {
  slot_type& from = slots_[slot];
  const stream_ref stream = *from.handed_to;
  recorded_end end;
  if (holds_host() && from.extras_used == 0) {
    end = hosts_[slot].end_after(stream);
  } else {
    end = record_release(from, stream);
    if (holds_host() && !end.is_lost) {
      recorded_end released = release_host_slot(slot);
      if (!end.error || released.is_lost) end = std::move(released);
    }
  }
  end_release(from, end);
}

template <device Device>
void device_slots<Device>::end_release(slot_type& from, const recorded_end& end) noexcept {
  if (end.error) release_errors_.record(end.error, end.is_lost);
  end.is_lost ? wake() : set_released(from);
}

template <device Device>
void device_slots<Device>::defer_release(std::size_t slot) noexcept {
  slot_type& from = slots_[slot];
  const stream_ref stream = *from.handed_to;
  if (from.extras_used != 0 || !is_consumer(stream)) return release(slot);
  const recorded_end end = record_or_wait([&] { require_still_usable(device_, stream); },
                                          [&] { return try_synchronize(device_, stream); });
  if (!end.error) [[likely]]
    return ended_.push_back(slot);
  from.released_at = 0;
  end_release(from, end);
}

template <device Device>
void device_slots<Device>::flush_releases(capture_check check) noexcept {
  if (ended_.empty()) return;
  const auto end = consumer_.mark(check);
  if (end.error) [[unlikely]]
    release_errors_.record(end.error, end.is_lost);
  for (const std::size_t slot : ended_) {
    if (end.is_lost) break;
    // Invariant: the flag is set after the record, as in `set_released`.
    slots_[slot].released_at = end.at;
    // Relaxed ordering suffices, because the same thread reads the flag.
    slots_[slot].is_released.store(true, std::memory_order_relaxed);
  }
  ended_.clear();
}

template <device Device>
void device_slots<Device>::discard(std::size_t slot) noexcept {
  slot_type& from = slots_[slot];
  if (keeps_host()) return_kept(slot);
  if (holds_host()) {
    from.lease.end();
    drop_host(slot);  // no work has used the slot
  } else {
    // No wait is needed, because the same stream fills the slot next.
    if constexpr (checked) from.lease.end_behind(1).behind(from.filled_by->stream(), erased(from));
    from.released_at = 0;
  }
  set_released(from);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
