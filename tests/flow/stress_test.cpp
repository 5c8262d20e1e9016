// SPDX-License-Identifier: BSL-1.0
// Random operations on loaders and feeds in every state, each batch and each refusal checked
// against a model. PENSTOCK_STRESS_SEED takes one seed alone, PENSTOCK_STRESS_STEPS another number
// of steps.
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "flow/state_machine.hpp"
#include "support/catch.hpp"
#include "support/environment.hpp"

TEST_CASE("whatever is done to a loader and its feeds, the next batch is the right one", "[flow]") {
  std::vector<std::uint64_t> seeds{1, 2, 3, 4, 5};
  if (const auto seed = test::number_in_environment("PENSTOCK_STRESS_SEED", 0)) seeds = {seed};
  const auto steps = test::number_in_environment("PENSTOCK_STRESS_STEPS", 2000);
  std::map<std::string_view, std::uint64_t> counts;
  for (const std::uint64_t seed : seeds) {
    stress::machine machine{seed};
    CHECK_NOTHROW(machine.run(steps));
    for (const auto& [what, times] : machine.counts()) counts[what] += times;
  }
  if (seeds.size() * steps < 10'000) return;
  // What the test is about has happened.
  for (const std::string_view what : {"batch",
                                      "end",
                                      "bad sample",
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
                                      "moved leases",
                                      "moved loader",
                                      "moved feed",
                                      "resume",
                                      "state",
                                      "state refused",
                                      "no state out of order",
                                      "feed destroyed under a range",
                                      "loader destroyed under a range",
                                      "end of what is gone"}) {
    INFO(what);
    CHECK(counts[what] >= 10);
  }
}
