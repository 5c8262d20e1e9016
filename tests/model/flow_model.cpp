// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/detail/claim_cursor.hpp>
#include <penstock/load/support/delivery.hpp>
#include <penstock/memory/support/host_slots.hpp>

#include "device.hpp"

namespace {

using claim = penstock::detail::claim;
using record = penstock::record<penstock::field<"label", std::uint64_t>>;

/// The path of a batch from claim to lease. Combines the library's classes with the steps and names
/// of `loader_core`. `Workers` threads read, and the last thread is the consumer.
template <class Scenario, int Workers, std::uint32_t Slots, std::uint32_t Runs>
struct flow : model::scenario<Scenario, Workers + 1> {
  penstock::detail::claim_cursor<> cursor{Runs};
  penstock::detail::host_slots<model::device> slots{
      model::device{}, penstock::batch_layout<record>{penstock::record_extents<record>{}, 1}, Slots,
      penstock::detail::memory_kind::device};
  std::array<penstock::detail::batch_work, Slots> work;
  std::array<penstock::detail::announcement, Slots> announced;
  std::array<model::plain<std::uint32_t>, Slots> bound{};  // the batch in each slot
  std::array<std::array<model::plain<std::uint32_t>, Runs>, Slots> memory{};

  model::mutex open;
  model::plain<std::uint32_t> opened{0};
  model::plain<std::uint32_t> end{0};
  model::plain<int> spare{-1};
  penstock::detail::waitable_counter demand;
  model::atomic<std::uint32_t> cancelled{0};
  model::atomic<bool> is_stopped{false};

  std::uint32_t next_batch = 0;  // only the consumer uses it

  void thread(unsigned index) {
    if (index == Workers) {
      static_cast<Scenario*>(this)->consume();
      is_stopped.store(true, std::memory_order_release);
      slots.close();
      demand.advance();
      cursor.wake();
    } else {
      read();
    }
  }

  // ---- workers

  void read() {
    while (!is_stopped.load(std::memory_order_acquire)) {
      claim got = cursor.next();
      if (got.what == claim::kind::wait) {
        cursor.wait_past(got.batch);
        continue;
      }
      if (got.what == claim::kind::open) {
        const auto slot = open_next();
        if (!slot) return;
        got.slot = *slot;
        got.chunk = 0;
      }
      const std::uint32_t batch = bound[got.slot].get();
      if (batch >= cancelled.load(std::memory_order_acquire)) {
        memory[got.slot][got.chunk].set(batch + 1);
      }
      if (!work[got.slot].finish_chunk()) continue;
      announced[batch % Slots].slot = got.slot;
      announced[batch % Slots].word.store(batch + 1);
    }
  }
  std::optional<std::uint32_t> open_next() {
    for (;;) {
      const std::uint32_t seen = demand.load();
      if (is_stopped.load(std::memory_order_acquire)) return std::nullopt;
      bool wanted = false;
      {
        const std::lock_guard lock{open};
        wanted = opened.get() != end.get();
      }
      if (!wanted) {
        demand.wait([seen](std::uint32_t now) { return now != seen; });
        continue;
      }
      if (spare.get() < 0) {
        const auto slot = slots.acquire();
        if (!slot) return std::nullopt;
        spare.set(static_cast<int>(*slot));
      }
      const std::lock_guard lock{open};
      if (opened.get() == end.get()) continue;
      const auto slot = static_cast<std::uint32_t>(spare.get());
      spare.set(-1);
      const std::uint32_t batch = opened.get();
      bound[slot].set(batch);
      work[slot].reset(0, Runs, 1);
      opened.set(batch + 1);
      cursor.publish(batch, slot);
      return slot;
    }
  }

  // ---- the consumer

  void start(std::uint32_t batches) {
    {
      const std::lock_guard lock{open};
      end.set(end.get() + batches);
    }
    demand.advance();
  }
  std::uint32_t wait_for_any() {
    const auto& next = announced[next_batch % Slots];
    next.word.wait([this](std::uint32_t now) { return now == next_batch + 1; });
    return next.slot;
  }
  void next() {
    const bool starving = announced[next_batch % Slots].word.load() != next_batch + 1;
    if (starving) slots.set_starving(true);
    const std::uint32_t slot = wait_for_any();
    if (starving) slots.set_starving(false);
    model::require(bound[slot].get() == next_batch, "batches come in order");
    for (const auto& run : memory[slot]) {
      model::require(run.get() == next_batch + 1, "every run of the batch is read");
    }
    ++next_batch;
    slots.release(slot);
  }
  void stop() {
    std::uint32_t last = 0;
    {
      const std::lock_guard lock{open};
      last = opened.get();
      end.set(last);
      cancelled.store(last, std::memory_order_release);
    }
    for (; next_batch != last; ++next_batch) slots.release(wait_for_any());
  }
};

/// The consumer iterates over a complete range.
template <class Scenario, int Workers, std::uint32_t Slots, std::uint32_t Runs, int Batches>
struct range : flow<Scenario, Workers, Slots, Runs> {
  void consume() {
    this->start(Batches);
    for (int i = 0; i != Batches; ++i) this->next();
    this->stop();
  }
};

struct one_slot : range<one_slot, 1, 1, 1, 2> {};
struct two_workers : range<two_workers, 2, 2, 1, 3> {};
struct four_slots : range<four_slots, 2, 4, 2, 6> {};
struct three_workers : range<three_workers, 3, 2, 2, 4> {};

/// The consumer leaves a range early and starts another.
struct left_and_begun : flow<left_and_begun, 2, 2, 2> {
  void consume() {
    start(4);
    next();
    stop();
    start(2);
    next();
    next();
    stop();
  }
};

/// The loader is destroyed while the workers read.
struct shut_down : flow<shut_down, 2, 2, 1> {
  void consume() {
    start(3);
    stop();
  }
};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::with_interruptions<one_slot>("one worker, one slot", 2),
                        model::with_interruptions<shut_down>("shut down at once", 1),
                        model::at_random<one_slot>("one worker, one slot"),
                        model::at_random<two_workers>("two workers, two slots"),
                        model::at_random<four_slots>("two workers, four slots"),
                        model::at_random<three_workers>("three workers, two slots"),
                        model::at_random<left_and_begun>("a range that is left, and another one"),
                        model::at_random<shut_down>("shut down at once"),
                    });
}
