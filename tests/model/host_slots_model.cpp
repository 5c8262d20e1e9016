// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/memory/support/host_slots.hpp>

#include "device.hpp"

namespace {

using record = penstock::record<penstock::field<"label", std::uint64_t>>;
using host_slots = penstock::detail::host_slots<model::device>;

/// Four slots, all in use. A sleeping worker is woken when the second slot is returned, or when the
/// first slot is returned if the consumer starves.
template <class Scenario, int Threads, std::uint32_t Slots = 4>
struct ring : model::scenario<Scenario, Threads> {
  host_slots slots{model::device{},
                   penstock::batch_layout<record>{penstock::record_extents<record>{}, 1}, Slots,
                   penstock::detail::memory_kind::device};
  std::array<model::plain<int>, Slots> user{};  // the last user of the slot writes it

  void before() {
    for (std::uint32_t i = 0; i != Slots; ++i) {
      model::require(slots.acquire().has_value(), "there is a slot");
    }
  }
  void release(std::uint32_t slot) {
    user[slot].set(1);
    slots.release(slot);
  }
  void release_behind_copy(std::uint32_t slot) {
    user[slot].set(1);
    slots.release_after(slot, model::device::stream_ref{});
  }
  /// Acquires a slot. The caller then owns the slot's memory and event.
  void acquire() {
    const auto slot = slots.acquire();
    model::require(slot.has_value(), "an open ring gives a slot");
    model::require(user[*slot].get() == 1, "what its user did is there");
    user[*slot].set(2);
  }
};

/// The consumer returns a slot and waits for the batch that is read into this slot.
struct starving : ring<starving, 2> {
  penstock::detail::waitable_counter batch;

  void thread(unsigned index) {
    if (index == 0) {
      release(1);
      slots.set_starving(true);
      batch.wait([](std::uint32_t now) { return now == 1; });
      slots.set_starving(false);
    } else {
      acquire();
      batch.store(1);
    }
  }
};

/// The consumer waits for a batch, and a third thread returns the slot after a copy.
struct starving_for_another : ring<starving_for_another, 3> {
  penstock::detail::waitable_counter batch;

  void thread(unsigned index) {
    if (index == 0) {
      slots.set_starving(true);
      batch.wait([](std::uint32_t now) { return now == 1; });
      slots.set_starving(false);
    } else if (index == 1) {
      acquire();
      batch.store(1);
    } else {
      release_behind_copy(2);
    }
  }
};

/// A consumer that reads samples itself waits for a slot. Another thread releases the lease of this
/// slot.
struct reads_itself : ring<reads_itself, 2> {
  void thread(unsigned index) {
    if (index == 0) {
      const auto slot = slots.acquire_starving();
      model::require(slot.has_value(), "an open ring gives a slot");
      model::require(user[*slot].get() == 1, "what its user did is there");
    } else {
      release(1);
    }
  }
};

/// The ring is closed while a consumer that reads samples itself waits.
struct reads_itself_and_is_closed : ring<reads_itself_and_is_closed, 2> {
  void thread(unsigned index) {
    if (index == 0) {
      model::require(!slots.acquire_starving(), "a closed ring gives none");
    } else {
      slots.close();
    }
  }
};

/// The consumer does not starve. Two threads return half of the slots, which wakes the worker.
struct half_come_back : ring<half_come_back, 3> {
  void thread(unsigned index) {
    if (index == 0) {
      acquire();
    } else {
      index == 1 ? release(1) : release_behind_copy(2);
    }
  }
};

/// The ring is closed while a worker sleeps.
struct closing : ring<closing, 2> {
  void thread(unsigned index) {
    if (index == 0) {
      if (slots.acquire()) model::require(user[3].get() == 1, "what its user did is there");
    } else {
      release(3);
      slots.close();
    }
  }
};

/// Copies out of two slots end at the same timeline point. A worker waits for this point while the
/// next copies are marked.
struct marked_together : ring<marked_together, 2> {
  using timeline = host_slots::timeline;
  std::shared_ptr<timeline> copies = std::make_shared<timeline>(
      model::device{}, model::device::stream_ref{}, 3, penstock::event_wait::by_host);

  void thread(unsigned index) {
    if (index == 0) {
      user[0].set(1);
      user[1].set(1);
      const auto end = copies->mark();
      model::require(end.at == 1, "the first point");
      slots.release_at(0, copies, end.at);
      slots.release_at(1, copies, end.at);
      static_cast<void>(copies->mark());
      slots.set_starving(true);
    } else {
      acquire();
      acquire();
    }
  }
};

/// More threads push at the same time than there are cells that the producers know to be free.
struct come_back_at_once : ring<come_back_at_once, 3, 3> {
  void before() {
    ring::before();
    for (int i = 0; i != 2; ++i) {  // four cells and two pops that no producer has seen yet
      release(0);
      model::require(slots.try_acquire().has_value(), "there is a slot");
    }
  }
  void thread(unsigned index) { release(index); }
  void after() {
    for (int i = 0; i != 3; ++i) {
      model::require(slots.try_acquire().has_value(), "every slot has come back");
    }
  }
};

/// Batches pass through a single slot. Every second batch returns the slot with a pending copy.
struct rounds : ring<rounds, 2> {
  penstock::detail::waitable_counter batch;

  void thread(unsigned index) {
    for (std::uint32_t round = 1; round != 4; ++round) {
      if (index == 0) {
        round % 2 == 0 ? release(1) : release_behind_copy(1);
        slots.set_starving(true);
        batch.wait([round](std::uint32_t now) { return now == round; });
        slots.set_starving(false);
        model::require(user[1].get() == 2, "what the worker did is there");
      } else {
        acquire();
        batch.store(round);
      }
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(
      argc, argv,
      {
          model::with_interruptions<starving>("the consumer starves", 2),
          model::with_interruptions<closing>("the ring is closed", 2),
          model::with_interruptions<reads_itself>("the consumer reads itself", 2),
          model::with_interruptions<reads_itself_and_is_closed>(
              "the consumer reads itself, and the ring is closed", 2),
          model::with_interruptions<starving_for_another>("the consumer starves for another's slot",
                                                          1),
          model::with_interruptions<marked_together>("copies are marked together", 2),
          model::with_interruptions<half_come_back>("half of the slots come back", 1),
          model::at_random<starving>("the consumer starves"),
          model::at_random<starving_for_another>("the consumer starves for another's slot"),
          model::at_random<half_come_back>("half of the slots come back"),
          model::at_random<marked_together>("copies are marked together"),
          model::at_random<rounds>("rounds through one slot"),
          model::at_random<come_back_at_once>("slots come back at once"),
      });
}
