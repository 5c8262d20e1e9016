// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/search/option_search.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::search_grid;

namespace {

std::vector<double> at(const search_grid& grid, const ps::tuned_options& options) {
  return grid.coordinates(grid.find(options).value());
}

}  // namespace

TEST_CASE("every combination has a unique number", "[tune]") {
  const search_grid grid{{.workers = {4, 0, 2, 4}, .depth = {3, 1}, .pinned = {1}}};
  REQUIRE(grid.size() == 6);
  CHECK(grid.varied() == 2);
  std::vector<ps::tuned_options> seen;
  for (std::size_t point = 0; point < grid.size(); ++point) {
    const auto options = grid.at(point);
    CHECK(std::find(seen.begin(), seen.end(), options) == seen.end());
    seen.push_back(options);
    CHECK(grid.find(options) == point);
    CHECK(options.pinned == 1);
    CHECK_FALSE(options.chunk);
  }
}

TEST_CASE("options outside the space have no number", "[tune]") {
  const search_grid grid{{.workers = {1, 2}, .depth = {2}}};
  CHECK(grid.find({.workers = 1, .depth = 2}));
  CHECK_FALSE(grid.find({.workers = 3, .depth = 2}));
  CHECK_FALSE(grid.find({.workers = 1}));
  CHECK_FALSE(grid.find({.workers = 1, .chunk = 4, .depth = 2}));
}

TEST_CASE("coordinates are logarithms, and 0 has a separate dimension", "[tune]") {
  const search_grid grid{{.workers = {0, 1, 2, 16}, .depth = {2, 8}}};
  CHECK(at(grid, {.workers = 1, .depth = 2}) == std::vector<double>{0, 0, 0});
  CHECK(at(grid, {.workers = 2, .depth = 8}) == std::vector<double>{0.25, 0, 1});
  CHECK(at(grid, {.workers = 16, .depth = 2}) == std::vector<double>{1, 0, 0});
  CHECK(at(grid, {.workers = 0, .depth = 2}) == std::vector<double>{0.5, 1, 0});
}

TEST_CASE("options are set if the space has a value for them", "[tune]") {
  ps::loader_options load{.batch_size = 32, .workers = 7, .prefetch = 5};
  ps::transfer_options transfer{.depth = 9};
  const ps::tuned_options some{.workers = 2, .pinned = 0};
  some.apply_to(load);
  some.apply_to(transfer);
  CHECK(load.workers == 2);
  CHECK_FALSE(load.pinned);
  CHECK(load.batch_size == 32);
  CHECK(load.prefetch == 5);
  CHECK(transfer.depth == 9);
  const ps::tuned_options others{
      .chunk = 3, .prefetch = 1, .depth = 4, .pinned = 1, .batch_size = 8};
  others.apply_to(load);
  others.apply_to(transfer);
  CHECK(load.tuning.chunk == 3);
  CHECK(load.prefetch == 1);
  CHECK(load.pinned);
  CHECK(load.batch_size == 8);
  CHECK(transfer.depth == 4);
}
