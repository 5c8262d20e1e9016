// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <new>

#include <penstock_ext/image/augment/one_pass.hpp>
#include <penstock_ext/image/resize.hpp>

#include "ext/image/owned_image.hpp"
#include "ext/image/plans.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"

namespace ps = penstock;

TEST_CASE("a resizer allocates nothing once it has seen the largest image", "[image]") {
  const test::owned_image in = test::random_image({200, 150}, 3);
  test::owned_image out{{50, 40}, 3};
  const ps::pixels place = out.view();
  for (const auto filter : {ps::resize_filter::nearest, ps::resize_filter::lanczos}) {
    ps::resizer resize{{filter, ps::pass_order::by_shrink}};
    const ps::image_box kept{0, 0, {50, 40}};
    resize(in.view(), {{0, 0, {200, 150}}, {50, 40}, kept}, place);
    resize(in.view(), {{0, 0, {50, 150}}, {50, 40}, kept, true}, place);
    const std::size_t before = test::allocations.load();
    for (std::size_t i = 0; i < 40; ++i) {
      resize(in.view(), {{i, i, {200 - i, 150 - 2 * i}}, {50, 40}, kept, i % 2 == 0}, place);
    }
    CHECK(test::allocations.load() == before);
  }
}

TEST_CASE("a resizer gives the same bits after a failed allocation", "[image]") {
  const test::owned_image in = test::random_image({60, 50}, 3);
  const ps::image_plan plan{{0, 0, {60, 50}}, {40, 30}, {0, 0, {40, 30}}};
  test::owned_image expected{{40, 30}, 3};
  ps::resizer{}(in.view(), plan, expected.view());
  std::size_t failed = 0;
  for (std::size_t which = 1;; ++which) {
    ps::resizer resize;
    test::owned_image out{{40, 30}, 3};
    const ps::const_pixels from = in.view();
    const ps::pixels to = out.view();
    bool found_memory = true;
    test::failing_allocation = which;
    try {
      resize(from, plan, to);
    } catch (const std::bad_alloc&) {
      found_memory = false;
      ++failed;
    }
    test::failing_allocation = 0;
    if (!found_memory) resize(from, plan, to);
    REQUIRE(out.bytes == expected.bytes);
    if (found_memory) break;
  }
  CHECK(failed >= 7);  // two tables of three arrays, and the rows between the passes
}

TEST_CASE("one pass allocates nothing", "[image][promise:exact-15]") {
  const test::owned_image in = test::random_image({60, 50}, 3);
  test::owned_image out{{40, 40}, 3};
  const ps::one_pass augment{ps::random_affine{{.degrees = 20}}, ps::random_crop{40},
                             ps::color_jitter{{.contrast = 0.5, .hue = 0.1}}, ps::grayscale{}};
  const ps::pixels place = out.view();
  ps::sample_generator random = test::random_of(3);
  const std::size_t before = test::allocations.load();
  for (int i = 0; i < 5; ++i) augment(in.view(), place, random);
  CHECK(test::allocations.load() == before);
}
