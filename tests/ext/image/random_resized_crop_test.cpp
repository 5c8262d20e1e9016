// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/crop.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "ext/image/plans.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::image_box;
using ps::image_plan;
using ps::image_size;
using test::random_of;

namespace {

// Returns the crop by torchvision's rule, computed with the standard library.
image_box by_the_book(const image_size& size, ps::sample_generator& random, ps::crop_range scale,
                      ps::crop_range ratio) {
  const double width = static_cast<double>(size.width);
  const double height = static_cast<double>(size.height);
  for (int i = 0; i < 10; ++i) {
    const double area = height * width * ps::uniform(random, scale.low, scale.high);
    const double shape = std::exp(ps::uniform(random, std::log(ratio.low), std::log(ratio.high)));
    const auto w = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * shape)));
    const auto h = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / shape)));
    const auto max_w = static_cast<std::int64_t>(size.width);
    const auto max_h = static_cast<std::int64_t>(size.height);
    if (0 < w && w <= max_w && 0 < h && h <= max_h) {
      const auto top = ps::uniform(random, std::int64_t{0}, max_h - h);
      const auto left = ps::uniform(random, std::int64_t{0}, max_w - w);
      return {static_cast<std::size_t>(left),
              static_cast<std::size_t>(top),
              {static_cast<std::size_t>(w), static_cast<std::size_t>(h)}};
    }
  }
  image_size crop = size;
  if (width / height < ratio.low) {
    crop.height = static_cast<std::size_t>(std::nearbyint(width / ratio.low));
  } else if (width / height > ratio.high) {
    crop.width = static_cast<std::size_t>(std::nearbyint(height * ratio.high));
  }
  return {(size.width - crop.width) / 2, (size.height - crop.height) / 2, crop};
}

}  // namespace

TEST_CASE("random resized crops follow torchvision's rule", "[image][promise:exact-15]") {
  const ps::crop_range ratio{3.0 / 4, 4.0 / 3};
  for (const ps::crop_range& scale : {ps::crop_range{0.08, 1}, {0.7, 1.4}, {0.001, 0.002}}) {
    const ps::random_resized_crop crop{{64, 48}, {.scale = scale, .ratio = ratio}};
    CHECK(crop.size() == image_size{64, 48});
    for (const image_size& size : {image_size{500, 375}, {40, 31}, {300, 100}, {90, 400}}) {
      for (std::uint64_t i = 0; i < 500; ++i) {
        ps::sample_generator one = random_of(i);
        ps::sample_generator other = random_of(i);
        const image_plan plan = crop.plan(size, one);
        REQUIRE(plan.crop == by_the_book(size, other, scale, ratio));
        REQUIRE(one() == other());
        REQUIRE(plan.scaled == image_size{64, 48});
        REQUIRE(plan.kept == image_box{0, 0, {64, 48}});
        REQUIRE(plan.size() == image_size{64, 48});
        REQUIRE_FALSE(plan.mirrored);
      }
    }
  }
}

TEST_CASE("random resized crops lie inside the image for any size", "[image][promise:exact-15]") {
  const ps::random_resized_crop usual{224};
  const ps::random_resized_crop odd{32, {.scale = {0.2, 3}, .ratio = {0.01, 0.02}}};
  ps::sample_generator random = random_of(0);
  for (int i = 0; i < 50'000; ++i) {
    const image_size size = test::random_size(random, i % 8 == 0 ? 1u << 24 : 2000);
    const bool sound = test::is_sound(usual, usual.plan(size, random), size) &&
                       test::is_sound(odd, odd.plan(size, random), size);
    if (!sound) FAIL("an image of " << size.width << " x " << size.height);
  }
}

TEST_CASE("random resized crops are the same on every machine", "[image][promise:exact-15]") {
  const ps::random_resized_crop crop{224};
  ps::sample_generator random = random_of(3);
  CHECK(crop.plan({500, 375}, random).crop == image_box{268, 101, {171, 219}});
  test::plan_sum sum;
  for (std::uint64_t i = 0; i < 5'000; ++i) {
    ps::sample_generator bits = random_of(i);
    sum(crop.plan(test::random_size(bits, 800), bits));
  }
  CHECK(sum.value() == 0x19dc10d3080ca577ull);
}

TEST_CASE("if no crop fits, the largest center crop is used", "[image]") {
  const ps::random_resized_crop crop{10, {.scale = {50, 50}}};
  ps::sample_generator random = random_of(0);
  CHECK(crop.plan({100, 90}, random).crop == image_box{0, 0, {100, 90}});
  CHECK(crop.plan({200, 30}, random).crop == image_box{80, 0, {40, 30}});
  CHECK(crop.plan({31, 201}, random).crop == image_box{0, 80, {31, 41}});
  CHECK(crop.plan({149, 200}, random).crop == image_box{0, 0, {149, 199}});
  CHECK(crop.plan({1, 9}, random).crop == image_box{0, 4, {1, 1}});
  const ps::random_resized_crop wide{10, {.scale = {50, 50}, .ratio = {8, 9}}};
  CHECK(wide.plan({3, 20}, random).crop == image_box{0, 9, {3, 1}});
}

TEST_CASE("a random resized crop's arguments are checked", "[image]") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto with = [](ps::crop_range scale, ps::crop_range ratio) {
    return test::rejection([&] { ps::random_resized_crop(8, {.scale = scale, .ratio = ratio}); });
  };
  CHECK(with({1e-9, 1}, {1e-4, 1e4}) == "accepted");
  CHECK(with({0, 1}, {1, 1}) ==
        "random_resized_crop: expected a scale of 0 < low <= high, found low = 0, high = 1");
  CHECK(with({0.5, 0.4}, {1, 1}) != "accepted");
  CHECK(with({0.5, infinity}, {1, 1}) != "accepted");
  CHECK(with({1, 1}, {0.5, 0.4}) ==
        "random_resized_crop: expected a ratio of 1e-4 <= low <= high <= 1e4, found low = 0.5, "
        "high = 0.4");
  CHECK(with({1, 1}, {1e-5, 1}) != "accepted");
  CHECK(with({1, 1}, {1, 1e5}) != "accepted");
  CHECK(test::rejection([] { ps::random_resized_crop{0}; }) ==
        "random_resized_crop: expected sides of 1 to 2^24 pixels, found 0 x 0");
  CHECK(test::rejection([] { ps::random_resized_crop{{7, (1u << 24) + 1}}; }) != "accepted");
  ps::sample_generator random = random_of(0);
  const ps::random_resized_crop crop{8};
  CHECK(test::rejection([&] { static_cast<void>(crop.plan({0, 3}, random)); }) ==
        "random_resized_crop: expected sides of 1 to 2^24 pixels, found 0 x 3");
}
