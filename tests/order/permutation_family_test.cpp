// SPDX-License-Identifier: BSL-1.0
#include <penstock/order/support/permutation.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "support/catch.hpp"
#include "support/statistics.hpp"

namespace ps = penstock;
using ps::detail::permutation_family;

TEST_CASE("each bijection of a family maps to every number once", "[order]") {
  const permutation_family family{{.seed = 1, .epoch = 2, .stage = 3}};
  for (std::uint64_t size = 1; size < 300; ++size) {
    for (const std::uint64_t which : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
      std::set<std::uint64_t> seen;
      for (std::uint64_t x = 0; x < size; ++x) seen.insert(family(which, size, x));
      REQUIRE(seen.size() == size);
      REQUIRE(*seen.rbegin() == size - 1);
    }
  }
  CHECK(family(5, std::uint64_t{1} << 63, 7) < std::uint64_t{1} << 63);
}

TEST_CASE("a family of another key has other bijections", "[order]") {
  std::set<std::uint64_t> seen;
  for (const ps::random_key& key : {ps::random_key{1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, 2, 4}}) {
    const permutation_family family{key};
    seen.insert(family(0, std::uint64_t{1} << 60, 7));
    seen.insert(family(1, std::uint64_t{1} << 60, 7));
    seen.insert(family.bits(0));
  }
  CHECK(seen.size() == 12);
}

TEST_CASE("the bijections of a family are even, and two of them independent",
          "[order][statistics]") {
  constexpr std::uint64_t draws = 60000;
  const permutation_family family{{.seed = 7, .epoch = 1, .stage = 0}};
  for (const std::uint64_t size : {3U, 4U, 5U, 16U, 23U}) {
    std::vector<double> images(size);        // images of 1
    std::vector<double> pairs(size * size);  // images of 1 under two consecutive bijections
    for (std::uint64_t which = 0; which < draws; ++which) {
      const std::uint64_t image = family(which, size, 1);
      ++images[image];
      ++pairs[image * size + family(which + 1, size, 1)];
    }
    CAPTURE(size);
    CHECK(chance_of(images) > false_alarm);
    CHECK(chance_of(pairs) > false_alarm);
  }
  std::map<std::vector<std::uint64_t>, double> whole;  // all 24 permutations of four elements
  for (std::uint64_t which = 0; which < draws; ++which) {
    std::vector<std::uint64_t> order;
    for (std::uint64_t x = 0; x < 4; ++x) order.push_back(family(which, 4, x));
    ++whole[order];
  }
  std::vector<double> counts;
  for (const auto& [order, count] : whole) counts.push_back(count);
  CHECK(counts.size() == 24);
  CHECK(chance_of(counts) > false_alarm);
}
