// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/geometry.hpp>

#include <cstdint>
#include <stdexcept>

#include <penstock_ext/image/crop.hpp>

#include "ext/image/plans.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::image_plan;
using ps::image_size;
using test::random_of;

TEST_CASE("a flip mirrors half of the images and changes nothing else", "[image]") {
  const ps::random_resized_crop crop{224};
  const auto flipped = crop | ps::random_flip{};
  static_assert(ps::image_geometry<decltype(flipped)>);
  CHECK(flipped.size() == image_size{224, 224});
  int mirrored = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ps::sample_generator one = random_of(i);
    ps::sample_generator other = random_of(i);
    const image_plan expected = crop.plan({500, 375}, one);
    image_plan found = flipped.plan({500, 375}, other);
    REQUIRE(found.mirrored == ps::bernoulli(one, 0.5));
    REQUIRE(one() == other());
    mirrored += found.mirrored;
    found.mirrored = false;
    REQUIRE(found == expected);
  }
  CHECK(mirrored == 512);
}

TEST_CASE("a flip of probability 0 or 1 is certain, and two of them undo each other", "[image]") {
  const auto never = ps::whole{8} | ps::random_flip{0};
  const auto always = ps::whole{8} | ps::random_flip{1};
  const auto twice = always | ps::random_flip{1};
  for (std::uint64_t i = 0; i < 20; ++i) {
    ps::sample_generator random = random_of(i);
    CHECK_FALSE(never.plan({5, 5}, random).mirrored);
    CHECK(always.plan({5, 5}, random).mirrored);
    CHECK_FALSE(twice.plan({5, 5}, random).mirrored);
  }
}

TEST_CASE("a flip's probability is between 0 and 1", "[image]") {
  CHECK(test::rejection([] { ps::random_flip{1.5}; }) ==
        "random_flip: expected 0 <= p <= 1, found p = 1.5");
  CHECK(test::rejection([] { ps::random_flip{-0.1}; }) ==
        "random_flip: expected 0 <= p <= 1, found p = -0.1");
}

TEST_CASE("the size of a plan is the kept part plus its border", "[image]") {
  image_plan plan;
  plan.kept = {9, 9, {5, 7}};
  CHECK(plan.size() == image_size{5, 7});
  plan.border = {1, 2, 3, 4};
  CHECK(plan.size() == image_size{9, 13});
}
