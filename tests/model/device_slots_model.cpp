// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/transfer/detail/device_slots.hpp>

#include "device.hpp"

namespace {

using record = penstock::record<penstock::field<"label", std::uint64_t>>;
using device_slots = penstock::detail::device_slots<model::device>;

struct host_batch {
  explicit operator bool() const { return true; }
  [[nodiscard]] static const std::byte* data() { return nullptr; }
  [[nodiscard]] static penstock::batch_info info() { return {.size = 1, .valid_size = 1}; }
  static void release_after(model::device::stream_ref) {}
};

/// Device slots that are all leased, and a consumer that waits for a slot as a feed does.
template <class Scenario, int Threads>
struct held : model::scenario<Scenario, Threads> {
  device_slots slots{model::device{},
                     penstock::batch_layout<record>{penstock::record_extents<record>{}, 1},
                     model::device::stream_ref{}, 2, 2};
  std::array<model::plain<int>, 2> user{};  // the owner of the lease writes it
  model::atomic<bool> is_stopped{false};

  void before() {
    for (std::size_t slot = 0; slot != 2; ++slot) {
      slots.copy_in(slot, host_batch{});
      static_cast<void>(slots.hand_out(slot, model::device::stream_ref{}));
    }
  }
  void release(std::size_t slot) {
    user[slot].set(1);
    slots.release(slot);
  }
  [[nodiscard]] std::optional<std::size_t> free_slot() const {
    for (std::size_t slot = 0; slot != 2; ++slot) {
      if (slots.is_released(slot)) return slot;
    }
    return std::nullopt;
  }
  std::optional<std::size_t> wait() {
    std::optional<std::size_t> slot;
    slots.wait_for_release(
        [&] { return (slot = free_slot()) || is_stopped.load(std::memory_order_acquire); });
    if (slot) {
      model::require(user[*slot].get() == 1, "what the lease's owner did is there");
      slots.copy_in(*slot, host_batch{});  // also records events
    }
    return slot;
  }
};

/// Another thread releases a lease.
struct one_ends : held<one_ends, 2> {
  void thread(unsigned index) {
    index == 0 ? model::require(wait().has_value(), "a slot is free") : release(1);
  }
};

/// Two threads each release a lease, and the consumer waits for both slots.
struct two_end : held<two_end, 3> {
  void thread(unsigned index) {
    if (index != 0) return release(index - 1);
    const auto one = wait();
    const auto two = wait();
    model::require(one && two && *one != *two, "both slots are free, once each");
  }
};

/// Two leases whose copies end at the same timeline point. Each thread makes a last stream wait for
/// this point and then releases its lease, while the consumer copies the next batch.
struct filled_together : model::scenario<filled_together, 3> {
  device_slots slots{model::device{},
                     penstock::batch_layout<record>{penstock::record_extents<record>{}, 1},
                     model::device::stream_ref{}, 3, 3};

  void before() {
    using filling = penstock::detail::slot_filling<host_batch>;
    std::array<filling, 2> both{filling{0, {}}, filling{1, {}}};
    slots.take(0, {.size = 1, .valid_size = 1});
    slots.take(1, {.size = 1, .valid_size = 1});
    slots.copy_in(std::span<filling>{both}, [](const filling&, const auto& queue) { queue(); });
  }
  void thread(unsigned index) {
    if (index == 2) {
      slots.copy_in(2, host_batch{});
      slots.wait_for_copy(2, model::device::stream_ref{});
    } else {
      slots.wait_for_copy(index, model::device::stream_ref{});
      static_cast<void>(slots.hand_out(index, model::device::stream_ref{}));
      slots.release(index);
    }
  }
  void after() {
    slots.copy_in(0, host_batch{});
    slots.copy_in(1, host_batch{});
  }
};

/// Threads enter a critical section one after the other.
struct in_turn : model::scenario<in_turn, 2> {
  penstock::detail::turn_lock lock;
  model::plain<int> entered{0};

  void thread(unsigned) {
    for (int round = 0; round != 2; ++round) {
      const std::lock_guard inside{lock};
      entered.set(entered.get() + 1);
    }
  }
  void after() { model::require(entered.get() == 4, "each has been inside"); }
};

/// A stop is requested, and no lease is released.
struct stopped : held<stopped, 2> {
  void thread(unsigned index) {
    if (index == 0) {
      model::require(!wait(), "no slot is free");
    } else {
      is_stopped.store(true, std::memory_order_release);
      slots.wake();
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(
      argc, argv,
      {
          model::with_interruptions<one_ends>("a lease ends", 2),
          model::with_interruptions<filled_together>("batches are filled together", 1),
          model::with_interruptions<in_turn>("a lock is entered in turn", 2),
          model::with_interruptions<stopped>("a stop is requested", 3),
          model::at_random<one_ends>("a lease ends"),
          model::at_random<two_end>("two leases end"),
          model::at_random<filled_together>("batches are filled together"),
      });
}
