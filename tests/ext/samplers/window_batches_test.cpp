// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/samplers/by_tokens.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::batch_packer;
using ps::detail::window_batches;

namespace {

struct packing_bounds {
  std::uint64_t max;
  std::uint64_t max_samples;
  std::uint64_t batches_per_step;
  bool padded;
};

/// Returns the positions in each batch, as a multiset, because the order of batches does not
/// matter.
std::multiset<std::vector<std::uint32_t>> packed(const std::vector<std::uint32_t>& bounds,
                                                 const packing_bounds& options) {
  const auto [max, max_samples, step, padded] = options;
  const window_batches found = batch_packer{
      bounds,
      {.max_tokens = max,
       .batches_per_step = step,
       .max_samples = max_samples,
       .padded = padded}}.packed();
  return {found.begin(), found.end()};
}

using batches = std::multiset<std::vector<std::uint32_t>>;

}  // namespace

TEST_CASE("places are packed into batches of equal loads", "[samplers]") {
  CHECK(packed({5, 4, 3, 2}, {7, 0, 1, false}) == batches{{0, 3}, {1, 2}});
  CHECK(packed({5, 4, 3, 2}, {14, 0, 1, false}) == batches{{0, 1, 2, 3}});
  CHECK(packed({5, 4, 3, 2}, {14, 0, 2, false}) == batches{{0, 3}, {1, 2}});  // whole steps only
  // At most three samples per batch.
  CHECK(packed({5, 4, 3, 2}, {14, 3, 1, false}) == batches{{0, 3}, {1, 2}});
  CHECK(packed({5, 5, 5}, {9, 0, 1, false}) == batches{{0}, {1}, {2}});
  CHECK(packed({5, 5, 5}, {9, 0, 2, false}) == batches{{0}, {1}, {2}, {}});
  CHECK(packed({1, 1, 1}, {2, 0, 1, false}) == batches{{0, 2}, {1}});
}

TEST_CASE("padded batches are runs of places of like bounds", "[samplers]") {
  CHECK(packed({4, 4, 2, 2, 1, 1}, {8, 0, 1, true}) == batches{{0, 1}, {2, 3, 4, 5}});
  CHECK(packed({4, 4, 2, 2, 1, 1}, {8, 0, 4, true}) == batches{{0}, {1}, {2, 3}, {4, 5}});
  CHECK(packed({4, 4, 2, 2, 1, 1}, {8, 3, 1, true}) == batches{{0}, {1, 2}, {3, 4, 5}});
  CHECK(packed({3, 1}, {3, 0, 4, true}) == batches{{0}, {1}, {}, {}});
  CHECK(packed({1, 1, 1}, {2, 0, 1, true}) == batches{{0}, {1, 2}});
}

TEST_CASE("the last place of padded batches is not alone if another batch has two", "[samplers]") {
  CHECK(packed({1, 1, 1, 1, 1}, {2, 0, 1, true}) == batches{{0}, {1, 2}, {3, 4}});
  CHECK(packed({1, 1, 1, 1, 1}, {2, 0, 4, true}) == batches{{0}, {1}, {2}, {3, 4}});
  CHECK(packed({4, 3, 1}, {6, 0, 1, true}) == batches{{0}, {1, 2}});
  // At most one sample per batch.
  CHECK(packed({4, 4, 1}, {7, 1, 1, true}) == batches{{0}, {1}, {2}});
  CHECK(packed({9, 9}, {10, 0, 1, true}) == batches{{0}, {1}});
}

TEST_CASE("padded batches are packed by their costs", "[samplers]") {
  const std::vector<std::uint32_t> bounds{7, 5, 5, 3, 3, 3, 1, 1};
  const window_batches all = batch_packer{bounds, {.max_tokens = 10, .padded = true}}.packed();
  std::vector<std::uint64_t> costs;
  for (const auto& places : all) costs.push_back(bounds[places[0]] * places.size());
  CHECK(costs == std::vector<std::uint64_t>{10, 9, 7, 6});
}
