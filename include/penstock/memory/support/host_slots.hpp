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

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/support/slot_layout.hpp>
#include <penstock/core/version.hpp>
#include <penstock/device/device.hpp>
#include <penstock/device/stream_timeline.hpp>
#include <penstock/memory/budget.hpp>
#include <penstock/memory/support/sample_lists.hpp>
#include <penstock/memory/support/slab.hpp>
#include <penstock/memory/support/slot_ring.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/observe/support/trace.hpp>
#include <penstock/threads/batch_queue.hpp>
#include <penstock/threads/support/atomics.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Throws `leases_exhausted` for a loader with `count` host slots, of which `lost` are lost.
/// `granted` is the reservation of the slots.
[[noreturn, gnu::cold]] inline void throw_slots_exhausted(std::size_t count,
                                                          const memory_reservation& granted,
                                                          std::size_t lost) {
  const std::string remedy =
      granted.slot_count() < granted.requested()
          ? str_cat({granted.failed_bytes() == 0 ? "raise memory.budget, which did"
                                                 : "raise the limits on locked memory (ulimit "
                                                   "-l), which did",
                     " not suffice for the ", granted.requested(), " slots requested"})
          : "raise prefetch";
  if (lost != 0) {
    throw leases_exhausted(str_cat(
        {"loader: ", lost, " of ", count,
         " host slots are lost, and leases hold the others: the device failed to record when ",
         "the work on them ends. Do not end a lease while its stream is being captured, and make ",
         "a new loader"}));
  }
  throw leases_exhausted(
      str_cat({"loader: all ", count, " host slots are held as leases: release one, or ", remedy}));
}

/// The host slot ring of a loader, for batches of any record, and the queue of free slots. Lives
/// until the last lease has ended.
///
/// A slot returns to the ring as a ticket. If a copy still reads the slot, the end of the copy is
/// recorded before the ticket is pushed, and the thread that pops the ticket waits for that end.
/// Tickets are queued in the order of their copies, so this thread waits for the oldest copy.
///
/// Sleeping workers wake when half of all slots have returned, and not for each slot. A wake-up
/// costs the consumer thread microseconds (11 measured on a virtual machine), and no slot is urgent
/// while batches are ready. A consumer that runs out of batches calls `set_starving`, after which
/// every ticket wakes a worker.
template <device Device>
class host_slots final : public slot_ring<Device> {
  using base = slot_ring<Device>;

 public:
  sample_lists lists;  ///< sample indices of the batch in each slot, if lists are requested

  /// Creates `count` slots for batches of `layout`. Propagates errors from the device, such as
  /// `out_of_memory`.
  host_slots(const Device& device, slot_layout layout, std::size_t count, memory_kind kind)
      : host_slots(device, layout, slab<Device>{device, kind, layout.bytes(), count}, count) {}
  /// Creates `count` slots for batches of `layout` in `memory`, whose unit is a slot. Owns
  /// `granted` until the memory is freed. Propagates errors from the device.
  host_slots(const Device& device, slot_layout layout, slab<Device> memory, std::size_t count,
             memory_reservation granted = {});

  /// Acquires a slot to fill. Blocks until a slot returns. Returns `std::nullopt` after `close`.
  /// Propagates errors from the device. `waits` times the waits.
  template <class Waits = unobserved>
  [[nodiscard]] std::optional<std::uint32_t> acquire(Waits&& waits = {}) {
    std::optional<ticket> back = returned_.try_pop();
    if (!back) {
      [[maybe_unused]] const auto timed = waits.for_slot();
      back = returned_.pop();
    }
    return wait_until_drained(back, waits);
  }

  /// Acquires a slot to fill without waiting for the consumer. Returns `std::nullopt` if no slot
  /// has returned. Propagates errors from the device. `waits` times the wait for a copy.
  template <class Waits = unobserved>
  [[nodiscard]] std::optional<std::uint32_t> try_acquire(Waits&& waits = {}) {
    return wait_until_drained(returned_.try_pop(), waits);
  }

  /// Acquires a slot like `acquire`, for a consumer that reads samples itself. Every lease that
  /// ends wakes the consumer.
  [[nodiscard]] std::optional<std::uint32_t> acquire_starving() {
    struct starving_guard {
      host_slots& ring;
      ~starving_guard() { ring.set_starving(false); }
    } const scope{*this};
    set_starving(true);
    return acquire();
  }

  /// Records that the consumer is about to wait for a batch (true) or has received it (false).
  /// While the consumer is starving, every slot that returns wakes a worker.
  void set_starving(bool starving) noexcept {
    starving_.store(starving, std::memory_order_seq_cst);
    if (starving) returned_.wake_poppers();
  }

  /// Wakes a worker that is still asleep although a slot has returned. Called by a polling
  /// consumer.
  void wake_if_free() noexcept {
    if (free_.load(std::memory_order_relaxed) != 0) returned_.wake_poppers();
  }
  /// Returns the number of slots that are currently leased.
  [[nodiscard]] std::size_t leased() const noexcept {
    return leased_.load(std::memory_order_acquire);
  }
  /// Returns true if leases hold every slot that is not lost.
  [[nodiscard]] bool is_exhausted() const noexcept {
    return leased() + base::lost() >= base::count();
  }
  /// Returns the recorder that traces leases, one at a time for each slot.
  [[nodiscard]] lease_tracks& leases() noexcept { return leases_; }
  /// Records that a lease of `slot` begins.
  void begin_lease(std::uint32_t slot) noexcept {
    leased_.fetch_add(1, std::memory_order_relaxed);
    leases_.begin(slot);
  }
  void close_lease(std::uint32_t slot, const batch_info& batch,
                   lease_guard& guard) noexcept override {
    guard.end();
    leases_.end(slot, batch);
    leased_.fetch_sub(1, std::memory_order_release);
  }

  /// Throws `leases_exhausted`, because the consumer requests a batch while leases hold every slot.
  [[noreturn]] void throw_exhausted() const {
    throw_slots_exhausted(base::count(), base::granted(), base::lost());
  }

  /// Wakes all threads that wait for a slot. Later calls of `acquire` do not wait.
  void close() noexcept { returned_.close(); }

 private:
  struct ticket {
    std::uint32_t slot;
    bool behind_copy;
  };
  // The value of the ticket that reports that all slots are lost.
  static constexpr std::uint32_t none_left = ~std::uint32_t{0};

  void add_free(std::uint32_t slot, bool is_copied) noexcept override { push({slot, is_copied}); }
  /// After the loss of the last slot, wakes a thread that waits for a slot. That thread throws, and
  /// pushes the ticket again for the next waiting thread.
  void wake_after_loss(bool is_last) noexcept override {
    if (is_last) push({none_left, false});
  }

  void push(ticket back) noexcept {
    // Counts the ticket before the push, so that no ticket is popped before it is counted.
    const std::size_t free = free_.fetch_add(1, std::memory_order_relaxed) + 1;
    // The queue has room for all tickets. A push fails only while more threads are in `push` than
    // the queue has spare cells, so the push is repeated. After `close`, no thread needs the
    // ticket.
    while (!returned_.try_push_quietly(back) && !returned_.was_closed()) std_atomics::yield();
    // Invariant: this thread pushes before it loads starving_, and the consumer stores starving_
    // before it checks for sleepers, all seq_cst. So either the consumer wakes a worker for this
    // ticket, or this thread does.
    if (free >= wake_at_ || starving_.load(std::memory_order_seq_cst)) returned_.wake_poppers();
  }

  template <class Waits>
  std::optional<std::uint32_t> wait_until_drained(std::optional<ticket> back, Waits& waits) {
    if (!back) return std::nullopt;
    free_.fetch_sub(1, std::memory_order_relaxed);
    try {
      [[maybe_unused]] const auto timed = waits.for_copy(back->behind_copy);
      if (back->slot == none_left) throw_exhausted();
      if (back->behind_copy) base::wait_for_copy(back->slot);
    } catch (...) {
      push(*back);  // The next thread that pops this ticket repeats the wait.
      throw;
    }
    base::allow(back->slot);
    return back->slot;
  }

  std::size_t wake_at_;
  lease_tracks leases_;
  batch_queue<ticket> returned_;
  // Each member has its own cache line. Workers and releasing threads write `free_`. The consumer
  // and releasing threads write `leased_`. Only the consumer writes `starving_`, which every
  // releasing thread reads.
  alignas(cache_line) std::atomic<std::size_t> free_{0};  // tickets in the queue
  alignas(cache_line) std::atomic<std::size_t> leased_{0};
  alignas(cache_line) std::atomic<bool> starving_{false};
};

template <device Device>
host_slots<Device>::host_slots(const Device& device, slot_layout layout, slab<Device> memory,
                               std::size_t count, memory_reservation granted)
    : base(device, std::move(layout), std::move(memory), count, std::move(granted)),
      wake_at_(std::max<std::size_t>(1, count / 2)),
      returned_(count) {
  for (std::uint32_t slot = 0; slot < count; ++slot) push({slot, false});
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
