// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The end of copies out of host slots, marked once for both sides: for the threads that refill the
/// host slots, and for the streams that use the device slots. The event belongs to the host slot of
/// one of the copies, which records it for one burst of copies after the other. Each device slot,
/// and each host slot's ticket, holds the mark as long as it may still wait for the record. The
/// mark goes with the last `ref`, that of its owner or another.
///
/// One thread at a time records, and it alone begins to hold. Waiting for the event changes
/// nothing, and any threads may do it at once.
template <class Event>
class shared_event {
 public:
  /// The end of a hold, on any thread.
  struct lets_go {
    void operator()(shared_event* held) const noexcept { held->let_go(); }
  };
  /// A mark that is held as long as this has it; or none.
  using ref = std::unique_ptr<shared_event, lets_go>;

  /// A mark of this event, which threads can sleep on, and its owner's hold.
  [[nodiscard]] static ref make(Event made) { return ref{new shared_event{std::move(made)}}; }
  shared_event(shared_event&&) = delete;

  /// What marks the end of the copies.
  [[nodiscard]] Event& event() noexcept { return event_; }
  [[nodiscard]] const Event& event() const noexcept { return event_; }

  /// Whether one beside the owner still needs the last record, so that there must not be another.
  [[nodiscard]] bool is_held() const noexcept {
    return holders_.load(std::memory_order_acquire) != 1;
  }
  /// One more needs it from now on. On the thread that has recorded the event.
  [[nodiscard]] ref hold() noexcept {
    holders_.fetch_add(1, std::memory_order_relaxed);
    return ref{this};
  }

 private:
  explicit shared_event(Event made) : event_(std::move(made)) {}
  ~shared_event() = default;
  /// One of them does not any more. From any thread.
  void let_go() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  Event event_;
  // Invariant: the event is recorded only while this is 1. It counts the owner, the device slots
  // whose leases, and the tickets whose takers, may still wait for the last record; each goes down
  // after its last wait: a thread that finds 1, and records, comes after all of them.
  std::atomic<std::size_t> holders_{1};
};

/// How the end of the last copy out of a host slot is known.
template <class Event>
struct end_of_copy {
  using mark_ref = typename shared_event<Event>::ref;

  mark_ref own;     ///< records the end of this slot's copy, and of others
  Event alone;      ///< does so while others hold that: of this slot's copy alone
  mark_ref marked;  ///< the one that has told it, until that was waited for

  /// The one to wait for.
  [[nodiscard]] const Event& last() const noexcept { return marked ? marked->event() : alone; }
};

/// Throws `leases_exhausted` for a loader with `count` host slots, `granted` by its budget of
/// `asked`, of which `lost` are in use for good.
[[noreturn, gnu::cold]] inline void throw_slots_exhausted(std::size_t count, std::uint64_t granted,
                                                          std::uint64_t asked, std::size_t lost) {
  const std::string remedy = granted < asked
                                 ? joined({"raise memory.budget, which had no room for the ", asked,
                                           " that were asked for"})
                                 : "raise prefetch";
  if (lost != 0) {
    throw leases_exhausted(
        joined({"loader: ", lost, " of ", count,
                " host slots are lost, and leases hold the others: the device refused to say when ",
                "the work on them ends. End no lease while its stream is being captured; make the ",
                "loader anew"}));
  }
  throw leases_exhausted(
      joined({"loader: all ", count, " host slots are held as leases: release one, or ", remedy}));
}

/// The ring of host slots of so many bytes, whatever lies in them: one slab, and the queue on which
/// free slots come back. Lives until the last lease is gone.
///
/// A slot comes back as a ticket, either free at once or after a copy. In the second case the
/// copy's end is recorded before the ticket goes into the queue, for this copy alone or for several
/// by one mark, and the thread that takes the ticket waits for it: it is the reaper. Tickets come
/// in the order of their copies, so it waits for the oldest.
///
/// A worker that sleeps for a slot is woken when half of them have come back, and not for each one:
/// a wake-up costs the consumer's thread microseconds (11 measured on a virtual machine), and as
/// long as batches are ready no worker needs the slot. A consumer that runs out of batches calls
/// `set_starving`; every ticket wakes then.
template <device Device>
class host_slots {
  using event_type = typename Device::event_type;

 public:
  /// The end of a copy, which the device slot waits for as well.
  using mark_type = shared_event<event_type>;
  sample_lists lists;  ///< which samples the slots hold, where that is asked for

  /// Slots for batches of `layout`. Keeps `granted` as long as the memory. Throws `out_of_memory`,
  /// and what the device throws.
  host_slots(const Device& device, slot_layout layout, std::size_t count, memory_kind kind,
             memory_reservation granted = {});
  host_slots(host_slots&&) = delete;

  /// What the fields of the batches are called, for what a checked build says about an address.
  template <record_type Record>
  void name_fields(const batch_layout<Record>& layout) {
    memory_.addresses().name_fields(layout);
  }

  /// The memory goes: no copy may still read it.
  ~host_slots();

  /// Where a batch's fields lie in a slot.
  [[nodiscard]] const slot_layout& layout() const noexcept { return layout_; }
  /// The device that the memory is pinned for.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// How many slots there are.
  [[nodiscard]] std::size_t count() const noexcept { return drained_.size(); }
  /// How many bytes all slots take.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }
  /// Whether the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept { return memory_.pinned(); }
  /// See `pinned_block`.
  [[nodiscard]] bool registration_refused() const noexcept {
    return memory_.registration_refused();
  }
  /// The first byte of a slot.
  [[nodiscard]] std::byte* data(std::uint32_t slot) const noexcept {
    return memory_.slot(slot, layout_.bytes());
  }

  /// Takes a slot to fill, waiting for one to come back; `std::nullopt` once `close` was called.
  /// Throws what the device throws. `waits` times the waits.
  template <class Waits = unobserved>
  [[nodiscard]] std::optional<std::uint32_t> acquire(Waits&& waits = {}) {
    std::optional<ticket> back = returned_.try_pop();
    if (!back) {
      [[maybe_unused]] const auto timed = waits.for_slot();
      back = returned_.pop();
    }
    return wait_until_drained(back, waits);
  }

  /// Takes a slot to fill without waiting for a consumer; `std::nullopt` when no slot has come
  /// back. Throws what the device throws. `waits` times a wait for a copy.
  template <class Waits = unobserved>
  [[nodiscard]] std::optional<std::uint32_t> try_acquire(Waits&& waits = {}) {
    return wait_until_drained(returned_.try_pop(), waits);
  }

  /// As `acquire`, for a consumer that reads itself: every end of a lease wakes it.
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
    memory_.erase(slot);
    memory_.forbid(slot);
    push({slot, false});
  }

  /// Returns a slot that is free once `stream` gets here. Throws what the device throws; the slot
  /// is returned then too, after a wait for the stream. Where the device refuses that as well,
  /// nothing tells when the slot is free, and it is lost: it can't be waited for by all work of the
  /// device either, which would end a capture of the program's.
  void give_back_after(std::uint32_t slot, typename Device::stream_ref stream) {
    try {
      require_still_usable(device_, stream);  // a record that is captured tells no thread anything
      device_.record(drained_[slot].alone, stream);
    } catch (...) {
      if (settle(device_, stream)) {
        give_back(slot);
      } else if (lost_.fetch_add(1, std::memory_order_release) + 1 == count()) {
        push({none_left, false});  // a thread that sleeps for a slot is told
      }
      throw;
    }
    push({slot, true});
  }

  /// Records by the mark of `slot` how far `stream` is, for this slot and others:
  /// `give_back_behind` returns them. Null, and nothing is recorded, where the mark is held for
  /// copies of before. One thread calls this and the next one for all slots. Throws what recording
  /// throws; the slot is as it was then.
  [[nodiscard]] mark_type* mark_copies(std::uint32_t slot, typename Device::stream_ref stream) {
    mark_type* const mark = drained_[slot].own.get();
    if (mark->is_held()) return nullptr;
    device_.record(mark->event(), stream);
    return mark;
  }
  /// Returns a slot that is free after what `mark` has recorded.
  void give_back_behind(std::uint32_t slot, mark_type* mark) noexcept {
    drained_[slot].marked = mark->hold();
    push({slot, true});
  }

  /// The consumer is about to wait for a batch (true), or has got it (false): while it starves,
  /// every slot that comes back wakes a worker.
  void set_starving(bool starving) noexcept {
    starving_.store(starving, std::memory_order_seq_cst);
    if (starving) returned_.wake_poppers();
  }

  /// Wakes a worker that sleeps although a slot has come back: for a consumer that polls.
  void wake_if_free() noexcept {
    if (free_.load(std::memory_order_relaxed) != 0) returned_.wake_poppers();
  }
  /// How many slots leases hold at the moment.
  [[nodiscard]] std::size_t leased() const noexcept {
    return leased_.load(std::memory_order_acquire);
  }
  /// Whether leases hold every slot that is not lost.
  [[nodiscard]] bool is_exhausted() const noexcept {
    return leased() + lost_.load(std::memory_order_acquire) >= count();
  }
  /// What records the leases, one at a time of each slot.
  [[nodiscard]] lease_tracks& leases() noexcept { return leases_; }
  /// Counts a lease that starts, of `batch` in `slot`.
  void note_lease(std::uint32_t slot, const batch_info& batch) noexcept {
    leased_.fetch_add(1, std::memory_order_relaxed);
    memory_.addresses().name_batch(slot, batch);
  }
  /// Counts a lease that has ended.
  void note_release() noexcept { leased_.fetch_sub(1, std::memory_order_release); }

  /// Throws `leases_exhausted`: the consumer asks for a batch while leases hold every slot.
  [[noreturn]] void throw_exhausted() const {
    throw_slots_exhausted(count(), granted_.slot_count(), granted_.asked(),
                          lost_.load(std::memory_order_acquire));
  }

  /// Wakes all waiters for slots, permanently.
  void close() noexcept { returned_.close(); }

 private:
  struct ticket {
    std::uint32_t slot;
    bool behind_copy;
  };
  static constexpr std::uint32_t none_left = ~std::uint32_t{0};  // of a ticket: all are lost

  void push(ticket back) noexcept {
    // Counted first: a ticket can't be popped before it counts.
    const std::size_t free = free_.fetch_add(1, std::memory_order_relaxed) + 1;
    // There is room for all tickets: a push that is refused has met more threads inside one than
    // there are spare cells, and goes in once they are through. After `close` no one takes it.
    while (!returned_.try_push_quietly(back) && !returned_.was_closed()) std_atomics::yield();
    // Invariant: the push comes before the load of starving_, and the store of starving_ before the
    // consumer's look for sleepers, all seq_cst: either the consumer wakes a worker for this
    // ticket, or one is woken here.
    if (free >= wake_at_ || starving_.load(std::memory_order_seq_cst)) returned_.wake_poppers();
  }

  template <class Waits>
  std::optional<std::uint32_t> wait_until_drained(std::optional<ticket> back, Waits& waits) {
    if (!back) return std::nullopt;
    free_.fetch_sub(1, std::memory_order_relaxed);
    try {
      [[maybe_unused]] const auto timed = waits.for_copy(back->behind_copy);
      if (back->slot == none_left) throw_exhausted();
      if (back->behind_copy) device_.synchronize(drained_[back->slot].last());
    } catch (...) {
      push(*back);  // as it came: the thread that takes it next waits again
      throw;
    }
    drained_[back->slot].marked.reset();
    memory_.allow(back->slot);
    if (back->behind_copy) memory_.erase(back->slot);
    return back->slot;
  }

  memory_reservation granted_;  // first: it ends when the slab has gone
  Device device_;
  slot_layout layout_;
  slab<Device> memory_;
  std::vector<detail::end_of_copy<event_type>> drained_;  // each is its ticket's
  std::size_t wake_at_;
  lease_tracks leases_;
  batch_queue<ticket> returned_;
  // A cache line each: workers and releasing threads write the first, the consumer the others, all
  // read the last.
  alignas(cache_line) std::atomic<std::size_t> free_{0};  // tickets in the queue
  alignas(cache_line) std::atomic<std::size_t> leased_{0};
  alignas(cache_line) std::atomic<bool> starving_{false};
  std::atomic<std::size_t> lost_{0};  // slots that are never used again
};

template <device Device>
host_slots<Device>::host_slots(const Device& device, slot_layout layout, std::size_t count,
                               memory_kind kind, memory_reservation granted)
    : granted_(std::move(granted)),
      device_(device),
      layout_(std::move(layout)),
      memory_(device, layout_.bytes() * count, kind, layout_.bytes()),
      wake_at_(std::max<std::size_t>(1, count / 2)),
      returned_(count) {
  drained_.reserve(count);
  for (std::size_t slot = 0; slot < count; ++slot) {
    drained_.push_back({mark_type::make(device.make_event(event_wait::by_host)),
                        device.make_event(event_wait::by_host),
                        {}});
  }
  // After all that may throw: a checked build forbids the memory, and the destructor allows it
  // again.
  for (std::uint32_t slot = 0; slot < count; ++slot) give_back(slot);
}

template <device Device>
host_slots<Device>::~host_slots() {
  for (const auto& copy : drained_) settle(device_, copy.last());
  if (lost_.load(std::memory_order_acquire) != 0) settle_everything(device_);
  for (std::uint32_t slot = 0; slot < count(); ++slot) memory_.allow(slot);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
