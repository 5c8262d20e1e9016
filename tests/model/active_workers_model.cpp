// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/load/detail/active_workers.hpp>
#include <penstock/load/detail/claim_cursor.hpp>

namespace {

using claim = penstock::detail::claim;
using cursor = penstock::detail::claim_cursor<model::atomics>;
using active_workers = penstock::detail::basic_active_workers<model::atomics>;

/// Two inactive workers and a thread that activates them.
struct opened : model::scenario<opened, 3> {
  model::plain<int> payload;
  active_workers all{2, 0};

  void thread(unsigned index) {
    if (index == 2) {
      payload.set(7);
      return all.open(2);
    }
    all.wait(index);
    model::require(payload.get() == 7, "what was written before the seat was opened is there");
  }
};

/// A worker is activated, deactivated and activated again.
struct opened_again : model::scenario<opened_again, 2> {
  active_workers all{2, 1};

  void thread(unsigned index) {
    if (index == 1) return all.wait(1);
    all.open(2);
    all.open(1);
    all.open(2);
  }
};

/// The object is closed while another thread still deactivates a worker.
struct ended : model::scenario<ended, 3> {
  active_workers all{2, 2};

  void thread(unsigned index) {
    if (index == 0) return all.open(1);
    if (index == 1) return all.close();
    if (!all.is_active(1)) all.wait(1);
  }
};

/// Three workers claim batches of a single chunk, as in `loader_core`. The worker that opens the
/// first batch deactivates all workers except the first. The work must continue regardless of the
/// workers that slept or were woken.
template <class Scenario, std::uint32_t Batches>
struct left_by : model::scenario<Scenario, 3> {
  cursor hand_out{1};
  active_workers all{3, 3};
  model::atomic<bool> is_over{false};
  model::plain<std::uint32_t> opened{0};  // only the opener uses it

  void thread(unsigned index) {
    while (!is_over.load(std::memory_order_acquire)) {
      if (!all.is_active(index)) {
        hand_out.pass_on();
        all.wait(index);
        continue;
      }
      const claim got = hand_out.next();
      if (got.what == claim::kind::wait) {
        hand_out.wait_past(got.batch);
        continue;
      }
      if (got.what == claim::kind::work) continue;
      const std::uint32_t next = opened.get();
      if (next == Batches) {
        is_over.store(true, std::memory_order_release);
        hand_out.wake();
        return all.close();
      }
      opened.set(next + 1);
      if (next == 0) all.open(1);
      hand_out.publish(next, 0);
    }
  }
};
struct left : left_by<left, 1> {};
struct left_longer : left_by<left_longer, 4> {};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::with_interruptions<opened>("two active_workers are opened", 2),
                        model::with_interruptions<opened_again>("opened, closed, opened", 4),
                        model::with_interruptions<ended>("ended while one is closed", 4),
                        model::with_interruptions<left>("two of three workers leave", 1),
                        model::at_random<left>("two of three workers leave"),
                        model::at_random<left_longer>("two of three workers leave"),
                    });
}
