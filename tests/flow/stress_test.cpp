// SPDX-License-Identifier: BSL-1.0
// Performs random operations on loaders and feeds in every state, and compares each batch and each
// error with a model. PENSTOCK_STRESS_SEED selects a single seed, and PENSTOCK_STRESS_STEPS the
// number of steps.
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "flow/state_machine.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

namespace {

/// The events that must occur during the test.
constexpr auto wanted = std::to_array<std::string_view>({"batch",
                                                         "end",
                                                         "bad sample",
                                                         "no order",
                                                         "size changed",
                                                         "leases_exhausted",
                                                         "cancelled",
                                                         "break",
                                                         "exception in the loop",
                                                         "left",
                                                         "left without a batch",
                                                         "begun again",
                                                         "second range",
                                                         "no such range",
                                                         "kept",
                                                         "dropped",
                                                         "dropped elsewhere",
                                                         "dropped meanwhile",
                                                         "dropped on a stream",
                                                         "order that hung",
                                                         "moved leases",
                                                         "moved loader",
                                                         "moved feed",
                                                         "resume",
                                                         "state",
                                                         "state rejected",
                                                         "no state out of order",
                                                         "feed destroyed under a range",
                                                         "loader destroyed under a range",
                                                         "end of what is gone"});

}  // namespace

TEST_CASE("after any sequence of calls on a loader and its transfers the next batch is correct",
          "[flow][promise:bounded-6]") {
  constexpr std::uint64_t usual_seeds = 5;
  constexpr std::uint64_t max_seeds = 50;
  constexpr std::uint64_t usual_steps = 2000;
  constexpr std::uint64_t often = 10;
  const auto seed_alone = test::number_in_environment("PENSTOCK_STRESS_SEED", 0);
  const auto steps = test::number_in_environment("PENSTOCK_STRESS_STEPS", usual_steps);
  std::map<std::string_view, std::uint64_t> counts;
  const auto run = [&](std::uint64_t seed) {
    stress::machine machine{seed};
    CHECK_NOTHROW(machine.run(steps));
    CHECK_NOTHROW(machine.clear());
    for (const auto& [what, times] : machine.counts()) counts[what] += times;
  };
  if (seed_alone != 0) return run(seed_alone);
  std::uint64_t seed = 1;
  while (seed <= usual_seeds) run(seed++);
  if (steps < usual_steps) return;
  // The events depend on timing, so the test runs more seeds until every event has occurred.
  const auto is_missing = [&](std::string_view what) { return counts[what] < often; };
  while (seed <= max_seeds && std::any_of(wanted.begin(), wanted.end(), is_missing)) run(seed++);
  for (const std::string_view what : wanted) {
    INFO(what);
    CHECK(counts[what] >= often);
  }
}
