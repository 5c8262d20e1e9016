// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/load/detail/batch_work.hpp>
#include <penstock/load/support/delivery.hpp>

namespace {

using batch_work = penstock::detail::batch_work;
using announcement = penstock::detail::announcement;

/// Each worker reads one chunk of a batch. The last worker to finish announces the batch, and the
/// consumer receives it.
template <class Scenario, std::uint32_t Workers>
struct countdown : model::scenario<Scenario, static_cast<int>(Workers) + 1> {
  batch_work batch;
  announcement announced;
  std::array<model::plain<int>, Workers> run{};
  model::plain<int> slot{0};

  void before() {
    batch.sequence = 0;
    batch.reset(0, Workers, 1);
  }
  void thread(unsigned index) {
    if (index < Workers) {
      run[index].set(1);
      if (!batch.finish_chunk()) return;
      slot.set(3);
      announced.word.store(1);
    } else {
      announced.word.wait([](std::uint32_t now) { return now == 1; });
      model::require(slot.get() == 3, "the slot is there");
      for (const auto& each : run) model::require(each.get() == 1, "every run is there");
    }
  }
};

struct two_runs : countdown<two_runs, 2> {};
struct four_runs : countdown<four_runs, 4> {};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::with_interruptions<two_runs>("two runs of a batch", 4),
                        model::with_interruptions<four_runs>("four runs of a batch", 1),
                        model::at_random<four_runs>("four runs of a batch"),
                    });
}
