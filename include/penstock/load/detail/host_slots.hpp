// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/detail/cache_line.hpp>
#include <penstock/core/error.hpp>
#include <penstock/device/device.hpp>
#include <penstock/load/detail/copy_mark.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/detail/slab.hpp>
#include <penstock/threads/batch_queue.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Which batch a lease holds. Numbers count from 0.
struct batch_info {
  /// The epoch.
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;  ///< the batch within its epoch
  std::size_t size = 0;     ///< its samples
  std::size_t valid = 0;  ///< its samples without those that only fill it up (`partial_batch::pad`)
  std::size_t skipped = 0;  ///< samples that it is shorter by, being bad (`error_action::skip`)
};

/// The ring of host slots: one slab, cut into slots that each hold a batch, and the queue on which
/// free slots come back. Lives until the last lease is gone.
///
/// A slot comes back as a ticket, either free at once or behind a copy: then the copy's end has been
/// recorded before the ticket went into the queue, and whoever takes the ticket waits for that. That thread is the reaper; tickets come in the order of their copies, so it waits for the
/// oldest.
///
/// A worker that sleeps for a slot is woken when half of them have come back, and not for each one: a
/// wake-up costs the consumer's thread microseconds (11 measured on a virtual machine), and as long as
/// batches are ready nobody needs the slot. A consumer that runs out of batches calls `set_starving`;
/// every ticket wakes then.
template <record_type Record, device Device>
class host_slots {
  using event_type = typename Device::event_type;

 public:
  /// The end of a copy, which the device slot waits for as well.
  using mark_type = detail::copy_mark<event_type>;

  /// Keeps `granted` as long as the memory. Throws `out_of_memory`, and what the device throws.
  host_slots(const Device& where, const batch_layout<Record>& layout, std::size_t count,
             memory_kind kind, memory_reservation granted = {})
      : granted_(std::move(granted)),
        device_(where),
        layout_(layout),
        memory_(where, layout.bytes() * count, kind, layout.bytes()),
        wake_at_(std::max<std::size_t>(1, count / 2)),
        returned_(count) {
    drained_.reserve(count);
    for (std::size_t slot = 0; slot < count; ++slot) {
      drained_.push_back({std::make_shared<mark_type>(where.make_event(event_wait::by_host)),
                          where.make_event(event_wait::by_host)});
    }
    // After all that may throw: a checked build forbids the memory, and the destructor allows it
    // again.
    for (std::uint32_t slot = 0; slot < count; ++slot) give_back(slot);
  }
  host_slots(host_slots&&) = delete;

  /// The memory goes: no copy may still read it.
  ~host_slots() {
    for (const auto& copy : drained_) {
      try {
        device_.synchronize(copy.last());
      } catch (...) {  // a device in error runs no copies any more
      }
    }
    detail::allow(memory_.data(), memory_.bytes());
  }

  /// The device that the memory is pinned for.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// Where a batch's fields lie in a slot.
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return layout_; }
  /// How many slots there are.
  [[nodiscard]] std::size_t count() const noexcept { return drained_.size(); }
  /// How many bytes all slots take.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }
  /// Whether the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept { return memory_.pinned(); }
  /// The first byte of a slot.
  [[nodiscard]] std::byte* data(std::uint32_t slot) const noexcept {
    return memory_.data() + slot * layout_.bytes();
  }

  /// Takes a slot to fill, waiting for one to come back; nothing once `close` was called. Throws what
  /// the device throws.
  [[nodiscard]] std::optional<std::uint32_t> acquire() { return settled(returned_.pop()); }

  /// The same without waiting for a consumer; nothing when no slot has come back.
  [[nodiscard]] std::optional<std::uint32_t> try_acquire() { return settled(returned_.try_pop()); }

  /// For a consumer that reads itself: as `acquire`, and whoever ends a lease wakes it.
  [[nodiscard]] std::optional<std::uint32_t> acquire_starving() {
    struct fed {
      host_slots& ring;
      ~fed() { ring.set_starving(false); }
    } const scope{*this};
    set_starving(true);
    return acquire();
  }

  /// Returns a slot that nothing reads any more.
  void give_back(std::uint32_t slot) noexcept {
    detail::poison(data(slot), layout_.bytes());
    detail::forbid(data(slot), layout_.bytes());
    push({slot, false});
  }

  /// Returns a slot that is free once `stream` gets here. Throws what recording throws; the slot is
  /// returned then too, after a wait for the stream.
  void give_back_after(std::uint32_t slot, typename Device::stream_ref stream) {
    drained_[slot].is_marked = false;
    record_and_push(slot, drained_[slot].alone, stream);
  }

  /// The same, by a record that the caller may wait for too, on the thread that calls this for all
  /// slots: it holds the mark as long as it does. Null where the slot's mark is held for a copy of
  /// before: then nobody but the slot knows the record.
  [[nodiscard]] std::shared_ptr<mark_type> give_back_marked(std::uint32_t slot,
                                                            typename Device::stream_ref stream) {
    const auto mark = drained_[slot].mark;
    if (mark->is_held()) {
      give_back_after(slot, stream);
      return nullptr;
    }
    drained_[slot].is_marked = true;
    record_and_push(slot, mark->event(), stream);
    return mark;
  }

  /// The consumer is about to wait for a batch, or has got it: while it starves, every slot that comes
  /// back wakes a worker.
  void set_starving(bool starving) noexcept {
    starving_.store(starving, std::memory_order_seq_cst);
    if (starving) returned_.wake_poppers();
  }

  /// Wakes a worker that sleeps although a slot has come back: for a consumer that asks now and then.
  void nudge() noexcept {
    if (free_.load(std::memory_order_relaxed) != 0) returned_.wake_poppers();
  }

  /// How many slots leases hold at the moment.
  [[nodiscard]] std::size_t leased() const noexcept {
    return leased_.load(std::memory_order_acquire);
  }
  /// Counts a lease that begins.
  void note_lease() noexcept { leased_.fetch_add(1, std::memory_order_relaxed); }
  /// Counts a lease that has ended.
  void note_release() noexcept { leased_.fetch_sub(1, std::memory_order_release); }

  /// For a consumer that asks for a batch while leases hold every slot, and is not to wait for one.
  [[noreturn]] void throw_exhausted() const {
    const std::string remedy = granted_.slot_count() < granted_.asked()
                                   ? "raise budget, which had no room for the " +
                                         std::to_string(granted_.asked()) + " that were asked for"
                                   : "raise prefetch";
    throw leases_exhausted("loader: all " + std::to_string(count()) +
                           " host slots are held as leases: release one, or " + remedy);
  }

  /// Ends waiting for slots, for good.
  void close() noexcept { returned_.close(); }

 private:
  struct ticket {
    std::uint32_t slot;
    bool behind_copy;
  };

  void push(ticket back) noexcept {
    // Counted first: a ticket can't be popped before it counts.
    const std::size_t free = free_.fetch_add(1, std::memory_order_relaxed) + 1;
    returned_.try_push_quietly(back);
    // Invariant: the push comes before the look at starving_, and starving_ before the consumer's
    // look for sleepers, all seq_cst: either the consumer wakes for this ticket, or it is woken here.
    if (free >= wake_at_ || starving_.load(std::memory_order_seq_cst)) returned_.wake_poppers();
  }

  /// How the end of the last copy out of a slot is known. Whoever has the slot's ticket has this.
  struct end_of_copy {
    std::shared_ptr<mark_type> mark;  // shared with the device slot of the copy
    event_type alone;                 // for when the mark is held
    bool is_marked = false;           // which of the two was recorded last

    [[nodiscard]] const event_type& last() const noexcept {
      return is_marked ? std::as_const(*mark).event() : alone;
    }
  };

  void record_and_push(std::uint32_t slot, event_type& end, typename Device::stream_ref stream) {
    try {
      device_.record(end, stream);
    } catch (...) {
      try {
        device_.synchronize(stream);
      } catch (...) {  // a device in error runs no copies any more
      }
      give_back(slot);
      throw;
    }
    push({slot, true});
  }

  std::optional<std::uint32_t> settled(std::optional<ticket> back) {
    if (!back) return std::nullopt;
    free_.fetch_sub(1, std::memory_order_relaxed);
    try {
      if (back->behind_copy) device_.synchronize(drained_[back->slot].last());
    } catch (...) {
      push(*back);  // as it came: who takes it next waits again
      throw;
    }
    detail::allow(data(back->slot), layout_.bytes());
    if (back->behind_copy) detail::poison(data(back->slot), layout_.bytes());
    return back->slot;
  }

  memory_reservation granted_;  // first: it ends when the slab has gone
  Device device_;
  batch_layout<Record> layout_;
  slab<Device> memory_;
  std::vector<end_of_copy> drained_;
  std::size_t wake_at_;
  batch_queue<ticket> returned_;
  // A line each: workers and who releases write the first, the consumer the others, all read the
  // last.
  alignas(detail::cache_line) std::atomic<std::size_t> free_{0};  // tickets in the queue
  alignas(detail::cache_line) std::atomic<std::size_t> leased_{0};
  alignas(detail::cache_line) std::atomic<bool> starving_{false};
};

/// A lease of one batch in host memory. Move-only; its destruction gives the slot back for refilling.
/// It may be moved out of the loop and kept, also beyond the loader: the memory lives as long. Used
/// by one thread at a time; may be destroyed on any.
template <record_type Record, device Device>
class host_batch {
 public:
  using record_type = Record;
  using device_type = Device;

  /// An empty lease.
  host_batch() = default;
  /// A lease of `slot`, which holds the batch; `lease` is what a checked build knows of it.
  host_batch(std::shared_ptr<host_slots<Record, Device>> ring, std::uint32_t slot,
             const batch_info& info, detail::lease_guard lease) noexcept
      : slots_(std::move(ring)),
        slot_(slot),
        info_(info),
        lease_(std::move(lease)) {  // NOLINT: trivial, but in a checked build
    slots_->note_lease();
  }
  /// The same; in a checked build it may throw std::bad_alloc, and the slot stays the caller's.
  host_batch(std::shared_ptr<host_slots<Record, Device>> ring, std::uint32_t slot,
             const batch_info& info) noexcept(!detail::checked)
      : host_batch(std::move(ring), slot, info, detail::lease_guard{info.epoch, info.index}) {}
  host_batch(host_batch&&) noexcept = default;
  /// A copy, as `auto batch` in a loop makes one, does not compile, and says why.
  template <std::same_as<host_batch> Lease>
  host_batch(Lease&) {  // NOLINT: implicit, as a copy is
    static_assert(
        sizeof(Lease) == 0,
        "penstock: a batch is a lease and is not copied: loop with `auto& batch`; to keep "
        "it, std::move(batch)");
  }
  host_batch& operator=(host_batch&& other) noexcept {
    if (this != &other) {
      release();
      slots_ = std::move(other.slots_);
      slot_ = other.slot_;
      info_ = other.info_;
      lease_ = std::move(other.lease_);
    }
    return *this;
  }
  ~host_batch() { release(); }

  /// Whether there is a batch. An empty lease may be assigned to, destroyed, and asked which batch
  /// it held last; whatever needs a batch ends the program with a sentence.
  [[nodiscard]] explicit operator bool() const noexcept { return slots_ != nullptr; }

  /// The samples of the batch; fewer than `batch_size` only in the last one of an epoch, and where bad
  /// samples are skipped.
  [[nodiscard]] std::size_t size() const noexcept { return info_.size; }
  /// The samples that are not filling (`partial_batch::pad`).
  [[nodiscard]] std::size_t valid() const noexcept { return info_.valid; }
  /// The batch's epoch.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return info_.epoch; }
  /// The batch's number within its epoch.
  [[nodiscard]] std::uint64_t index() const noexcept { return info_.index; }
  /// Which batch it is.
  [[nodiscard]] const batch_info& info() const noexcept { return info_; }
  /// The host slot that holds the batch.
  [[nodiscard]] std::size_t slot() const noexcept { return slot_; }

  /// Whether the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept {
    use();
    return slots_->pinned();
  }
  /// The slab: all fields, see `batch_layout`.
  [[nodiscard]] std::byte* data() noexcept {
    use();
    return slots_->data(slot_);
  }
  /// The slab, to read.
  [[nodiscard]] const std::byte* data() const noexcept {
    use();
    return slots_->data(slot_);
  }

  /// All samples of the batch.
  [[nodiscard]] batch_view<Record> view() noexcept {
    return {data(), slots_->layout(), 0, info_.size, lease_.tag()};
  }
  /// All samples of the batch, to read.
  [[nodiscard]] const_batch_view<Record> view() const noexcept {
    return {data(), slots_->layout(), 0, info_.size, lease_.tag()};
  }

  /// A `tensor_view` of one field, the samples as outermost dimension; of const for a const lease.
  template <name Name>
  [[nodiscard]] auto get() noexcept {
    return view().template get<Name>();
  }
  /// The same of const.
  template <name Name>
  [[nodiscard]] auto get() const noexcept {
    return view().template get<Name>();
  }

  /// Gives the slot back as soon as `stream` has done what it was given so far: for a copy out of the
  /// slot that runs on. The lease is empty then. Throws what the device throws.
  void release_after(typename Device::stream_ref stream) {
    use();
    lease_.end();
    const auto ring = std::move(slots_);
    ring->note_release();
    ring->give_back_after(slot_, stream);
  }
  /// The same, with the record that was made, or null; see `host_slots::give_back_marked`.
  [[nodiscard]] auto release_marked(typename Device::stream_ref stream) {
    use();
    lease_.end();
    const auto ring = std::move(slots_);
    ring->note_release();
    return ring->give_back_marked(slot_, stream);
  }

 private:
  void use() const noexcept {
    lease_.use();
    if (slots_ == nullptr) detail::no_batch();
  }

  void release() noexcept {
    if (slots_ == nullptr) return;
    lease_.end();
    slots_->note_release();
    slots_->give_back(slot_);
    slots_.reset();
  }

  std::shared_ptr<host_slots<Record, Device>> slots_;
  std::uint32_t slot_ = 0;
  batch_info info_;
  [[no_unique_address]] detail::lease_guard lease_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
