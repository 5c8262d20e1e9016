// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/transfer/detail/device_slots.hpp>

#include "device.hpp"

namespace {

using record = penstock::record<penstock::field<"label", std::uint64_t>>;
using device_slots = penstock::detail::device_slots<model::device>;

struct host_batch {
  [[nodiscard]] static const std::byte* data() { return nullptr; }
  [[nodiscard]] static penstock::batch_info info() { return {.size = 1, .valid_size = 1}; }
  static void release_after(model::device::stream_ref) {}
};

/// Device slots that are all held as leases, and a consumer that waits for one of them as a feed
/// does.
template <class Scenario, int Threads>
struct held : model::scenario<Scenario, Threads> {
  device_slots slots{model::device{},
                     penstock::batch_layout<record>{penstock::record_extents<record>{}, 1}, 2, 2};
  std::array<model::plain<int>, 2> user{};  // what the lease's owner did
  model::atomic<bool> is_stopped{false};

  void before() {
    slots.copy_in(0, host_batch{});
    slots.copy_in(1, host_batch{});
  }
  void release(std::size_t slot) {
    user[slot].set(1);
    slots.release(slot, model::device::stream_ref{});
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
      slots.copy_in(*slot, host_batch{});  // and its records
    }
    return slot;
  }
};

/// One lease ends on another thread.
struct one_ends : held<one_ends, 2> {
  void thread(unsigned index) {
    index == 0 ? model::require(wait().has_value(), "a slot is free") : release(1);
  }
};

/// Two end on two threads, and the consumer wants both slots.
struct two_end : held<two_end, 3> {
  void thread(unsigned index) {
    if (index != 0) return release(index - 1);
    const auto one = wait();
    const auto two = wait();
    model::require(one && two && *one != *two, "both slots are free, once each");
  }
};

/// A batch of the one host slot there is, whose mark copies share.
struct marked_batch : host_batch {
  using mark_type = penstock::detail::shared_event<model::device::event_type>;
  mark_type* mark = nullptr;

  [[nodiscard]] mark_type* mark_copies(model::device::stream_ref stream) const {
    if (mark->is_held()) return nullptr;
    model::device::record(mark->event(), stream);
    return mark;
  }
  static void release_behind(mark_type*) noexcept {}
};

/// Two leases, whose copies one mark ends, each have a last stream wait for it and end on threads
/// of their own, while the consumer copies the next batch out of the host slot of the mark.
struct mark_shared : model::scenario<mark_shared, 3> {
  device_slots slots{model::device{},
                     penstock::batch_layout<record>{penstock::record_extents<record>{}, 1}, 3, 3};
  marked_batch::mark_type::ref mark =
      marked_batch::mark_type::make(model::device::make_event(penstock::event_wait::by_host));

  void before() {
    using filling = penstock::detail::slot_filling<marked_batch>;
    std::array<filling, 2> both{filling{0, {{}, mark.get()}}, filling{1, {{}, mark.get()}}};
    slots.take(0, {.size = 1, .valid_size = 1});
    slots.take(1, {.size = 1, .valid_size = 1});
    slots.copy_in(std::span<filling>{both}, [](const filling&, const auto& queue) { queue(); });
  }
  void thread(unsigned index) {
    if (index == 2) {
      slots.copy_in(2, marked_batch{{}, mark.get()});
      slots.wait_for_copy(2, model::device::stream_ref{});
    } else {
      slots.wait_for_copy(index, model::device::stream_ref{});
      slots.release(index, model::device::stream_ref{});
    }
  }
};

/// None ends, and a stop is requested.
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
  return model::run(argc, argv,
                    {
                        model::with_interruptions<one_ends>("a lease ends", 3),
                        model::with_interruptions<mark_shared>("a mark is shared", 2),
                        model::with_interruptions<stopped>("a stop is requested", 3),
                        model::with_interruptions<two_end>("two leases end", 1),
                        model::at_random<one_ends>("a lease ends"),
                        model::at_random<two_end>("two leases end"),
                        model::at_random<mark_shared>("a mark is shared"),
                    });
}
