// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/samplers/support/round_robin.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "support/catch.hpp"

namespace {

using turns_type = std::vector<penstock::detail::part_turn>;

/// Returns the turns of a naive algorithm, which selects the part that is furthest behind its
/// share, or the first of equal parts.
turns_type slow_turns(const std::vector<std::uint32_t>& weights) {
  const auto sum = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  turns_type turns;
  std::vector<std::int64_t> had(weights.size());
  for (std::int64_t place = 1; place <= sum; ++place) {
    std::vector<std::int64_t> behind;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      behind.push_back(weights[i] == 0 ? -sum * sum : place * weights[i] - sum * had[i]);
    }
    const auto next = std::max_element(behind.begin(), behind.end()) - behind.begin();
    turns.push_back({static_cast<std::uint32_t>(next),
                     static_cast<std::uint32_t>(had[static_cast<std::size_t>(next)]++)});
  }
  return turns;
}

}  // namespace

TEST_CASE("each turn goes to the part that is furthest behind", "[samplers]") {
  CHECK(penstock::detail::round_robin(std::vector<std::uint32_t>{}).empty());
  CHECK(penstock::detail::round_robin(std::vector<std::uint32_t>{0, 3, 0}) ==
        turns_type{{1, 0}, {1, 1}, {1, 2}});
  std::mt19937 random{7};
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint32_t> weights(1 + random() % 12);
    const auto max = 1 + random() % 20;  // a small maximum makes many weights equal
    for (std::uint32_t& weight : weights) {
      weight = static_cast<std::uint32_t>(random() % (max + 1));
    }
    CAPTURE(weights);
    REQUIRE(penstock::detail::round_robin(weights) == slow_turns(weights));
  }
}
