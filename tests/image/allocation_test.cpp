// SPDX-License-Identifier: BSL-1.0
#include <cstddef>

#include <penstock/image/resize.hpp>

#include "image/pictures.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"

namespace ps = penstock;

TEST_CASE("a resizer allocates nothing once it has seen the largest picture", "[image]") {
  const test::picture in = test::random_picture({200, 150}, 3);
  test::picture out{{50, 40}, 3};
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
