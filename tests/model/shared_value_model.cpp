// SPDX-License-Identifier: BSL-1.0
#include "checker.hpp"

#include <penstock/threads/support/shared_value.hpp>

namespace {

struct pair {
  std::uint64_t first = 0;
  std::uint64_t second = 0;
};

/// One thread writes twice. Each of the other threads tries to read twice.
template <class Scenario, int Readers>
struct read_meanwhile : model::scenario<Scenario, 1 + Readers> {
  penstock::detail::shared_value<pair, model::atomics> value;

  void thread(unsigned index) {
    if (index == 0) {
      for (std::uint64_t i = 1; i != 3; ++i) value.store({i, i});
    } else {
      std::uint64_t before = 0;
      for (int turn = 0; turn != 2; ++turn) {
        pair got;
        if (!value.try_load(got)) continue;
        model::require(got.first == got.second, "a value is read whole");
        model::require(got.first >= before, "no older value comes after a newer one");
        before = got.first;
      }
    }
  }
};

struct one_reader : read_meanwhile<one_reader, 1> {};
struct two_readers : read_meanwhile<two_readers, 2> {};

}  // namespace

int main(int argc, char** argv) {
  return model::run(argc, argv,
                    {
                        model::with_interruptions<one_reader>("one reader", 3),
                        model::at_random<two_readers>("two readers"),
                    });
}
