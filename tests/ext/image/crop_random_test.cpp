// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/crop.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include <penstock_ext/image/resize.hpp>

#include "ext/image/owned_image.hpp"
#include "ext/image/plans.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;
using ps::image_plan;
using ps::image_size;
using test::random_of;

TEST_CASE("a random crop copies its part of the padded image", "[image]") {
  const test::owned_image in = test::random_image({6, 5}, 1);
  const ps::random_crop crop{{7, 4}, {.padding = 3}};
  CHECK(crop.size() == image_size{7, 4});
  ps::resizer resize;
  std::set<std::pair<std::size_t, std::size_t>> places;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ps::sample_generator one = random_of(i);
    ps::sample_generator other = random_of(i);
    const image_plan plan = crop.plan(in.size, one);
    const std::size_t top = ps::uniform(other, std::size_t{0}, std::size_t{7});
    const std::size_t left = ps::uniform(other, std::size_t{0}, std::size_t{5});
    REQUIRE(one() == other());
    places.insert({left, top});
    REQUIRE(test::is_sound(crop, plan, in.size));
    test::owned_image out{{7, 4}, 1};
    resize(in.view(), plan, out.view());
    for (std::size_t y = 0; y < 4; ++y) {
      for (std::size_t x = 0; x < 7; ++x) {
        // Inside the padding, the difference wraps around to a large number.
        const std::size_t column = left + x - 3;
        const std::size_t row = top + y - 3;
        const bool inside = column < 6 && row < 5;
        REQUIRE(out.at(x, y, 0) == (inside ? *(in.view().row(row) + column) : 0));
      }
    }
  }
  CHECK(places.size() == 48);
}

TEST_CASE("a random crop is the same on every machine", "[image][promise:exact-15]") {
  const auto geometry = ps::random_crop{32, {.padding = 4}} | ps::random_flip{};
  test::plan_sum sum;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ps::sample_generator bits = random_of(i);
    sum(geometry.plan({32 + i % 3, 40}, bits));
  }
  CHECK(sum.value() == 0x652f5c9b429f8e68ull);
}

TEST_CASE("a random crop of a resized image computes no more than itself", "[image]") {
  const auto geometry = ps::resize_shorter{40} | ps::random_crop{32};
  ps::sample_generator one = random_of(0);
  ps::sample_generator other = random_of(0);
  const image_plan plan = geometry.plan({100, 50}, one);
  CHECK(plan.crop == ps::image_box{0, 0, {100, 50}});
  CHECK(plan.scaled == image_size{80, 40});
  CHECK(plan.kept == ps::random_crop{32}.plan({80, 40}, other).crop);
}

TEST_CASE("random crops lie inside the image for any size", "[image]") {
  const ps::random_crop crop{{5, 9}, {.padding = 4}};
  ps::sample_generator random = random_of(0);
  int rejected = 0;
  for (int i = 0; i < 30'000; ++i) {
    const image_size size = test::random_size(random, 2000);
    try {
      if (!test::is_sound(crop, crop.plan(size, random), size)) {
        FAIL("an image of " << size.width << " x " << size.height);
      }
    } catch (const ps::image_too_small&) {
      ++rejected;
    }
  }
  CHECK(rejected == 0);
}

TEST_CASE("an image smaller than the crop is rejected by name", "[image]") {
  ps::sample_generator random = random_of(0);
  const ps::random_crop crop{{7, 5}, {.padding = 1}};
  CHECK(crop.plan({5, 3}, random).crop == ps::image_box{0, 0, {5, 3}});
  for (const image_size& size : {image_size{4, 3}, {5, 2}}) {
    const auto problem =
        test::error_of<ps::image_too_small>([&] { static_cast<void>(crop.plan(size, random)); });
    CHECK(problem.found() == size);
    CHECK(std::string{problem.what()} ==
          "random_crop: expected an image of at least 7 x 5 with a padding of 1 on each side, "
          "found " +
              std::to_string(size.width) + " x " + std::to_string(size.height) +
              ": pad more, or resize before");
  }
}

TEST_CASE("a random crop's arguments are checked", "[image]") {
  ps::sample_generator random = random_of(0);
  CHECK(test::rejection([] { ps::random_crop{0}; }) ==
        "random_crop: expected sides of 1 to 2^24 pixels, found 0 x 0");
  CHECK(test::rejection([] { ps::random_crop{{9, 4}, {.padding = 4}}; }) ==
        "random_crop: expected a padding smaller than the crop of 9 x 4, found 4");
  CHECK(test::rejection([] { ps::random_crop{{4, 9}, {.padding = 4}}; }) ==
        "random_crop: expected a padding smaller than the crop of 4 x 9, found 4");
  CHECK(test::rejection([&] { static_cast<void>(ps::random_crop{4}.plan({0, 3}, random)); }) ==
        "random_crop: expected sides of 1 to 2^24 pixels, found 0 x 3");
}
