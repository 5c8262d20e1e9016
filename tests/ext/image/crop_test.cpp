// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/crop.hpp>

#include <cstddef>
#include <cstdint>

#include "ext/image/plans.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::image_border;
using ps::image_box;
using ps::image_plan;
using ps::image_size;
using test::random_of;

TEST_CASE("all of an image is resized to one size", "[image]") {
  ps::sample_generator random = random_of(0);
  const ps::whole all{{30, 20}};
  CHECK(all.size() == image_size{30, 20});
  CHECK(all.plan({7, 9}, random) ==
        image_plan{{0, 0, {7, 9}}, {30, 20}, {0, 0, {30, 20}}, false, {}});
  CHECK(ps::whole{5}.size() == image_size{5, 5});
}

TEST_CASE("a crop from the middle has torchvision's rounding", "[image]") {
  ps::sample_generator random = random_of(0);
  const ps::center_crop crop{{10, 8}};
  CHECK(crop.size() == image_size{10, 8});
  // Halves are rounded to even: 0.5, 1.5, 2.5 and 3.5.
  const image_size sizes[] = {{10, 8}, {11, 11}, {13, 9}, {15, 13}, {17, 15}, {18, 12}};
  const image_box crops[] = {{0, 0, {10, 8}}, {0, 2, {10, 8}}, {2, 0, {10, 8}},
                             {2, 2, {10, 8}}, {4, 4, {10, 8}}, {4, 2, {10, 8}}};
  for (std::size_t i = 0; i < 6; ++i) {
    const image_plan plan = crop.plan(sizes[i], random);
    CAPTURE(i);
    CHECK(plan.crop == crops[i]);
    CHECK(plan.scaled == plan.crop.size);
    CHECK(plan.kept == image_box{0, 0, {10, 8}});
    CHECK(plan.border == image_border{});
  }
}

TEST_CASE("a crop around a smaller image is filled with zeros", "[image]") {
  ps::sample_generator random = random_of(0);
  const ps::center_crop crop{{10, 8}};
  const image_plan low = crop.plan({15, 5}, random);
  CHECK(low.crop == image_box{2, 0, {10, 5}});
  CHECK(low.border == image_border{0, 1, 0, 2});
  const image_plan narrow = crop.plan({3, 20}, random);
  CHECK(narrow.crop == image_box{0, 6, {3, 8}});
  CHECK(narrow.border == image_border{3, 0, 4, 0});
}

TEST_CASE("the shorter side is resized and the longer one cut to an integer", "[image]") {
  ps::sample_generator random = random_of(0);
  const auto crop = ps::resize_shorter{256} | ps::center_crop{224};
  CHECK(crop.size() == image_size{224, 224});
  // 256 * 500 / 375 = 341.3; each side loses (341 - 224) / 2 = 58.5 columns.
  CHECK(crop.plan({500, 375}, random) ==
        image_plan{{0, 0, {500, 375}}, {341, 256}, {58, 16, {224, 224}}, false, {}});
  CHECK(crop.plan({375, 500}, random) ==
        image_plan{{0, 0, {375, 500}}, {256, 341}, {16, 58, {224, 224}}, false, {}});
  CHECK(crop.plan({99, 99}, random) ==
        image_plan{{0, 0, {99, 99}}, {256, 256}, {16, 16, {224, 224}}, false, {}});
  CHECK(crop.plan({500, 375}, random) ==
        (ps::resize_shorter{256} | ps::center_crop{224}).plan({500, 375}, random));
  const auto padded = ps::resize_shorter{20} | ps::center_crop{{30, 10}};
  CHECK(padded.plan({50, 50}, random) ==
        image_plan{{0, 0, {50, 50}}, {20, 20}, {0, 5, {20, 10}}, false, {5, 0, 5, 0}});
}

TEST_CASE("center crops lie inside the image for any size", "[image]") {
  ps::sample_generator random = random_of(0);
  const ps::center_crop crop{{100, 7}};
  const auto resized = ps::resize_shorter{40} | ps::center_crop{{32, 50}};
  for (int i = 0; i < 20'000; ++i) {
    const image_size size = test::random_size(random, 2000);
    const bool sound = test::is_sound(crop, crop.plan(size, random), size) &&
                       test::is_sound(resized, resized.plan(size, random), size);
    if (!sound) FAIL("an image of " << size.width << " x " << size.height);
  }
}

TEST_CASE("sizes of crops from the middle are checked", "[image]") {
  ps::sample_generator random = random_of(0);
  constexpr std::size_t longest = std::size_t{1} << 24;
  CHECK(test::rejection([] { ps::whole{{longest, longest}}; }) == "accepted");
  CHECK(test::rejection([] { ps::whole{{longest + 1, 1}}; }) != "accepted");
  CHECK(test::rejection([] { ps::whole{{1, longest + 1}}; }) != "accepted");
  CHECK(test::rejection([] { ps::whole{0}; }) ==
        "whole: expected sides of 1 to 2^24 pixels, found 0 x 0");
  CHECK(test::rejection([] { ps::center_crop{{0, 4}}; }) ==
        "center_crop: expected sides of 1 to 2^24 pixels, found 0 x 4");
  CHECK(test::rejection([] { static_cast<void>(ps::resize_shorter{0} | ps::center_crop{4}); }) ==
        "resize_shorter: expected 1 to 2^24 pixels, found 0");
  CHECK(test::rejection([&] { static_cast<void>(ps::whole{4}.plan({3, 0}, random)); }) ==
        "whole: expected sides of 1 to 2^24 pixels, found 3 x 0");
  CHECK(test::rejection([&] { static_cast<void>(ps::center_crop{4}.plan({0, 3}, random)); }) ==
        "center_crop: expected sides of 1 to 2^24 pixels, found 0 x 3");
  const auto crop = ps::resize_shorter{1000} | ps::center_crop{4};
  CHECK(test::rejection([&] { static_cast<void>(crop.plan({0, 3}, random)); }) ==
        "resize_shorter: expected sides of 1 to 2^24 pixels, found 0 x 3");
  CHECK(test::rejection([&] { static_cast<void>(crop.plan({1, 20'000}, random)); }) ==
        "resize_shorter: expected sides of 1 to 2^24 pixels, found 1000 x 20000000");
}
