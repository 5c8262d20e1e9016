// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/load/detail/claim_cursor.hpp>

namespace {

using claim = penstock::detail::claim;
using cursor = penstock::detail::claim_cursor<model::atomics>;

/// Workers claim and read `Batches` batches of `Runs` chunks, each batch in its own slot. The
/// scenario ends when the last batch has been claimed. With `Stopper`, the last thread stops the
/// scenario at any time. With `Uneven`, each batch has one chunk less than the previous batch, but
/// at least one.
template <class Scenario, int Workers, std::uint32_t Runs, std::uint32_t Batches, bool Stopper,
          bool Uneven = false>
struct batches : model::scenario<Scenario, Workers + (Stopper ? 1 : 0)> {
  cursor hand_out{Runs};
  model::atomic<bool> is_stopped{false};
  model::plain<std::uint32_t> opened{0};  // only the opener uses it
  // The batch number plus one, for each slot.
  std::array<model::plain<std::uint32_t>, Batches> bound{};
  std::array<std::array<model::plain<bool>, Runs>, Batches> is_read{};

  static constexpr std::uint32_t slot_of(std::uint32_t batch) { return Batches - 1 - batch; }
  static constexpr std::uint32_t first_of(std::uint32_t batch) { return Uneven ? batch % Runs : 0; }

  void thread(unsigned index) {
    if (index == Workers) {
      is_stopped.store(true, std::memory_order_release);
      hand_out.wake();
      return;
    }
    bool has_waited = false;
    std::uint32_t waited_past = 0;
    while (!is_stopped.load(std::memory_order_acquire)) {
      claim got = hand_out.next();
      if (has_waited && got.batch == waited_past) {
        model::require(is_stopped.load(std::memory_order_acquire),
                       "a worker that has waited past a batch does not claim it again");
      }
      has_waited = got.what == claim::kind::wait;
      if (got.what == claim::kind::wait) {
        hand_out.wait_past(got.batch);
        waited_past = got.batch;
        continue;
      }
      if (got.what == claim::kind::open) {
        const std::uint32_t next = opened.get();
        model::require(got.batch + 1 == next, "batches are opened in order");
        if (next == Batches) {
          is_stopped.store(true, std::memory_order_release);
          return hand_out.wake();
        }
        opened.set(next + 1);
        bound[slot_of(next)].set(next + 1);
        hand_out.publish(next, slot_of(next), first_of(next));
        got = {claim::kind::work, next, slot_of(next), first_of(next)};
      }
      model::require(got.chunk >= first_of(got.batch), "the run is one of its batch");
      model::require(got.slot == slot_of(got.batch), "the claim names the slot of its batch");
      model::require(bound[got.slot].get() == got.batch + 1, "the slot is bound to the batch");
      model::require(!is_read[got.batch][got.chunk].get(), "no run is handed out twice");
      is_read[got.batch][got.chunk].set(true);
    }
  }

  void after() {
    if (Stopper) return;
    for (std::uint32_t batch = 0; batch < Batches; ++batch) {
      for (std::uint32_t run = first_of(batch); run < Runs; ++run) {
        model::require(is_read[batch][run].get(), "every run is handed out");
      }
    }
  }
};

struct two_workers : batches<two_workers, 2, 1, 2, false> {};
struct more_runs : batches<more_runs, 2, 2, 2, false> {};
struct three_workers : batches<three_workers, 3, 1, 2, false> {};
struct stopped : batches<stopped, 2, 1, 2, true> {};
struct many : batches<many, 4, 3, 4, false> {};
struct uneven : batches<uneven, 2, 2, 2, false, true> {};
struct many_uneven : batches<many_uneven, 4, 3, 4, false, true> {};
struct many_stopped : batches<many_stopped, 3, 2, 4, true> {};

/// No read ends before all chunks of the batch are being read and the next batch is open. Enough
/// workers must therefore be awake; any further workers may sleep.
template <class Scenario, int Workers, std::uint32_t Runs, std::uint32_t Batches>
struct together : model::scenario<Scenario, Workers> {
  cursor hand_out{Runs};
  model::atomic<bool> is_over{false};
  model::plain<std::uint32_t> opened{0};  // only the opener uses it
  // For each batch, counts one step per chunk and one step for opening the next batch.
  std::array<penstock::detail::basic_waitable_counter<model::atomics>, Batches> met;

  void thread(unsigned) {
    for (;;) {
      claim got = hand_out.next();
      if (got.what == claim::kind::wait) {
        hand_out.wait_past(got.batch);
        if (is_over.load(std::memory_order_acquire)) return;
        continue;
      }
      if (got.what == claim::kind::open) {
        const std::uint32_t next = opened.get();
        if (next != 0) met[next - 1].advance();
        if (next == Batches) {
          is_over.store(true, std::memory_order_release);
          return hand_out.wake();
        }
        opened.set(next + 1);
        hand_out.publish(next, 0);
        got = {claim::kind::work, next, 0, 0};
      }
      met[got.batch].advance();
      met[got.batch].wait([](std::uint32_t now) { return now == Runs + 1; });
    }
  }
};

struct pairs : together<pairs, 2, 1, 2> {};
struct pair_of_three : together<pair_of_three, 3, 1, 2> {};
struct three_of_four : together<three_of_four, 4, 2, 3> {};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::with_interruptions<two_workers>("two workers", 4),
                        model::with_interruptions<more_runs>("two runs a batch", 4),
                        model::with_interruptions<three_workers>("three workers", 2),
                        model::with_interruptions<stopped>("two workers are stopped", 2),
                        model::with_interruptions<uneven>("two runs, then one", 4),
                        model::at_random<many_uneven>("four workers, batches of other runs"),
                        model::at_random<many>("four workers, four batches of three runs"),
                        model::at_random<many_stopped>("three workers are stopped"),
                        model::with_interruptions<pairs>("two workers at once", 3),
                        model::with_interruptions<pair_of_three>("two of three at once", 2),
                        model::at_random<pair_of_three>("two of three at once"),
                        model::at_random<three_of_four>("three of four at once"),
                    });
}
