// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/observe/support/trace_writer.hpp>

namespace {

struct event {
  std::uint64_t number = ~std::uint64_t{0};
  std::uint64_t value = 0;
};

/// One thread adds `Events` events to a ring of two while the other threads copy the ring.
template <class Scenario, int Readers, std::uint64_t Events>
struct copied_meanwhile : model::scenario<Scenario, 1 + Readers> {
  penstock::detail::trace_ring<event, model::atomics> ring{2};

  void thread(unsigned index) {
    if (index == 0) {
      for (std::uint64_t i = 0; i != Events; ++i) ring.add({0, 10 + i});
      return;
    }
    std::vector<event> all;
    const std::uint64_t first = ring.copy_to(all);
    const std::uint64_t end = first + all.size();
    model::require(end <= Events && all.size() <= 2, "no more are there than were added");
    for (std::size_t i = 0; i != all.size(); ++i) {
      model::require(all[i].number == first + i, "events come in their order, without a gap");
      model::require(all[i].value == 10 + first + i, "an event is read whole");
    }
    // The last two events are never overwritten.
    if (end + 1 >= Events) model::require(!all.empty(), "what was added is there");
  }
};

struct one_reader : copied_meanwhile<one_reader, 1, 3> {};
struct two_readers : copied_meanwhile<two_readers, 2, 4> {};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::with_interruptions<one_reader>("one reader", 3),
                        model::at_random<two_readers>("two readers"),
                    });
}
