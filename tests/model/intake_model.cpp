// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock_ext/intake/support/intake_board.hpp>

#include "device.hpp"

namespace {

using record = penstock::record<penstock::field<"label", std::uint64_t>>;
using board = penstock::detail::intake_board<record, model::device>;
using penstock::when_full;

/// An intake whose batches are plain variables, so that the checker detects concurrent use of a
/// slot.
template <class Scenario, int Threads, when_full Policy, std::uint32_t Slots>
struct pushed : model::scenario<Scenario, Threads> {
  penstock::batch_layout<record> layout{penstock::record_extents<record>{}, 1};
  board slots{
      model::device{},
      layout,
      penstock::detail::slab<model::device>{model::device{}, Slots* layout.bytes(),
                                            penstock::detail::memory_kind::device, layout.bytes()},
      Slots,
      {.policy = Policy},
      {}};
  std::array<model::plain<std::uint64_t>, Slots> memory{};
  model::plain<std::uint64_t> skipped{0};  // total skipped count of the received batches

  /// Waits for a slot and pushes batch `number`. Returns false if the intake is closed.
  bool push(std::uint64_t number) {
    const auto slot = slots.acquire(board::forever);
    if (!slot) return false;
    memory[*slot].set(number);
    return slots.commit(*slot, {.tag = number});
  }
  /// Receives the next batch and releases its slot after a copy. Returns false at the end.
  bool take() {
    const auto next = slots.next(true, []() noexcept {});
    if (!next) return false;
    model::require(memory[next->first].get() == next->second.tag, "a batch is as it was written");
    skipped.set(skipped.get() + next->second.dropped);
    slots.release_after(next->first, model::device::stream_ref{});
    return true;
  }
  /// Receives the remaining batches and checks the counts.
  void require_all(std::uint64_t committed) {
    slots.close(false);
    while (take()) {
    }
    const auto stats = slots.stats();
    model::require(stats.committed == committed, "all batches are committed");
    model::require(stats.delivered + stats.dropped == committed, "each is delivered or dropped");
  }
};

/// Two producers share a slot, and the consumer receives both batches.
struct one_slot : pushed<one_slot, 3, when_full::wait, 1> {
  void thread(unsigned index) {
    if (index != 0) {
      push(index);
    } else {
      take();
      take();
    }
  }
  void after() {
    require_all(2);
    model::require(slots.stats().delivered == 2, "none is dropped");
  }
};

/// A producer drops the oldest batch while the consumer receives it.
struct drop_beside_hand_out : pushed<drop_beside_hand_out, 2, when_full::drop_oldest, 1> {
  void thread(unsigned index) {
    if (index == 0) {
      take();
    } else {
      push(1);
      push(2);
    }
  }
  void after() {
    require_all(2);
    model::require(skipped.get() == slots.stats().dropped, "the drops are reported");
  }
};

/// Two producers drop the oldest batch while the consumer receives batches.
struct two_drop : pushed<two_drop, 3, when_full::drop_oldest, 2> {
  void thread(unsigned index) {
    if (index == 0) {
      take();
      take();
    } else {
      push(2 * index);
      push(2 * index + 1);
    }
  }
  void after() {
    require_all(4);
    model::require(skipped.get() == slots.stats().dropped, "the drops are reported");
  }
};

/// Two producers share a slot, and no thread receives a batch.
struct nobody_takes : pushed<nobody_takes, 2, when_full::drop_oldest, 1> {
  void thread(unsigned index) { push(index); }
  void after() { require_all(2); }
};

/// The intake is closed while a producer waits for a slot or the consumer waits for a batch.
struct closing : pushed<closing, 3, when_full::wait, 1> {
  model::plain<std::uint64_t> committed{0};

  void thread(unsigned index) {
    if (index == 0) {
      slots.close(false);
    } else if (index == 1) {
      std::uint64_t count = 0;
      while (count != 2 && push(count)) ++count;
      committed.set(count);
    } else {
      while (take()) {
      }
    }
  }
  void after() {
    const auto stats = slots.stats();
    model::require(stats.delivered == committed.get(), "what was pushed in time is delivered");
  }
};

/// The intake is closed while a producer waits for a slot that is never returned.
struct closed_while_full : pushed<closed_while_full, 2, when_full::wait, 1> {
  void before() { model::require(slots.acquire(board::forever).has_value(), "there is a slot"); }
  void thread(unsigned index) {
    if (index == 0) {
      slots.close(false);
    } else {
      model::require(!push(1), "a closed intake gives no slot");
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(
      argc, argv,
      {
          model::with_interruptions<one_slot>("two producers and one slot", 2),
          model::with_interruptions<drop_beside_hand_out>("a drop beside a hand-out", 3),
          model::with_interruptions<nobody_takes>("nobody takes a batch", 3),
          model::with_interruptions<closing>("closed", 2),
          model::with_interruptions<closed_while_full>("closed while no slot is free", 3),
          model::with_interruptions<two_drop>("two producers drop beside hand-outs", 1),
          model::at_random<one_slot>("two producers and one slot"),
          model::at_random<two_drop>("two producers drop beside hand-outs"),
          model::at_random<closing>("closed"),
      });
}
