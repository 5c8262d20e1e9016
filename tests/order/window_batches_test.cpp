// SPDX-License-Identifier: BSL-1.0
#include <penstock/order/detail/window_batches.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::packing_bounds;
using ps::detail::window_batches;

namespace {

/// The places of all batches, as a set: their order says nothing.
std::multiset<std::vector<std::uint32_t>> packed(const std::vector<std::uint32_t>& bounds,
                                                 const packing_bounds& options) {
  const window_batches batches{bounds, options};
  std::multiset<std::vector<std::uint32_t>> all;
  for (std::uint64_t i = 0; i < batches.count(); ++i) {
    all.emplace(batches.places(i).begin(), batches.places(i).end());
  }
  return all;
}

using batches = std::multiset<std::vector<std::uint32_t>>;

}  // namespace

TEST_CASE("places are packed into batches of equal loads", "[order]") {
  CHECK(packed({5, 4, 3, 2}, {7, 0, 1, false}) == batches{{0, 3}, {1, 2}});
  CHECK(packed({5, 4, 3, 2}, {14, 0, 1, false}) == batches{{0, 1, 2, 3}});
  CHECK(packed({5, 4, 3, 2}, {14, 0, 2, false}) == batches{{0, 3}, {1, 2}});  // whole steps
  CHECK(packed({5, 4, 3, 2}, {14, 3, 1, false}) == batches{{0, 3}, {1, 2}});  // at most 3
  CHECK(packed({5, 5, 5}, {9, 0, 1, false}) == batches{{0}, {1}, {2}});
  CHECK(packed({5, 5, 5}, {9, 0, 2, false}) == batches{{0}, {1}, {2}, {}});
  CHECK(packed({0, 0, 0}, {2, 0, 1, false}) == batches{{0, 2}, {1}});  // each counts as 1
}

TEST_CASE("padded batches are runs of places of like bounds", "[order]") {
  CHECK(packed({4, 4, 2, 2, 1, 1}, {8, 0, 1, true}) == batches{{0, 1}, {2, 3, 4, 5}});
  CHECK(packed({4, 4, 2, 2, 1, 1}, {8, 0, 4, true}) == batches{{0}, {1}, {2, 3}, {4, 5}});
  CHECK(packed({4, 4, 2, 2, 1, 1}, {8, 3, 1, true}) == batches{{0, 1}, {2, 3}, {4, 5}});
  CHECK(packed({3, 1}, {3, 0, 4, true}) == batches{{0}, {1}, {}, {}});
  CHECK(packed({0, 0, 0}, {2, 0, 1, true}) == batches{{0}, {1, 2}});
}

TEST_CASE("the last place of padded batches is not alone where another batch has two", "[order]") {
  CHECK(packed({1, 1, 1, 1, 1}, {2, 0, 1, true}) == batches{{0, 1}, {2}, {3, 4}});
  CHECK(packed({1, 1, 1, 1, 1}, {2, 0, 4, true}) == batches{{0}, {1}, {2}, {3, 4}});
  CHECK(packed({4, 3, 1}, {6, 0, 1, true}) == batches{{0}, {1, 2}});
  CHECK(packed({4, 4, 1}, {7, 1, 1, true}) == batches{{0}, {1}, {2}});  // at most 1
  CHECK(packed({9, 9}, {10, 0, 1, true}) == batches{{0}, {1}});
}

TEST_CASE("padded batches come by their costs", "[order]") {
  const std::vector<std::uint32_t> bounds{7, 5, 5, 3, 3, 3, 1, 1};
  const window_batches all{bounds, {10, 0, 1, true}};
  std::vector<std::uint64_t> costs;
  for (std::uint64_t i = 0; i < all.count(); ++i) {
    costs.push_back(bounds[all.places(i)[0]] * all.places(i).size());
  }
  CHECK(costs == std::vector<std::uint64_t>{10, 9, 7, 2});
  CHECK(all.widest() == 3);
}
