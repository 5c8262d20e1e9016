// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/augment/to_chw.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <penstock/core/tensor_view.hpp>

#include "ext/image/owned_image.hpp"
#include "ext/image/plans.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::owned_image;

TEST_CASE("planes of floats contain each channel, scaled as in torchvision", "[image]") {
  const ps::channel_scale scale{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
  owned_image sheet = test::random_image({40, 30}, 3);
  const ps::const_pixels part = sheet.view().part({3, 5, {31, 20}});
  std::vector<float> floats(3 * 20 * 31);
  ps::to_chw{scale}(part, ps::tensor_view<float, 3, 20, 31>{floats.data(), {}});
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t y = 0; y < 20; ++y) {
      for (std::size_t x = 0; x < 31; ++x) {
        const float value = static_cast<float>(sheet.at(3 + x, 5 + y, c)) / 255.0f;
        REQUIRE(floats[(c * 20 + y) * 31 + x] == (value - scale.mean[c]) / scale.stddev[c]);
      }
    }
  }
}

TEST_CASE("without a scale floats are from 0 to 1", "[image]") {
  owned_image some{{2, 1}, 3};
  some.bytes = {0, 255, 51, 255, 0, 102};
  std::vector<float> floats(6);
  ps::to_chw{}(some.view(), ps::tensor_view<float, 3, 1, 2>{floats.data(), {}});
  CHECK(floats == std::vector<float>{0, 1, 1, 0, 0.2f, 0.4f});
}

TEST_CASE("planes of a different size are rejected", "[image]") {
  const ps::to_chw planes;
  std::vector<float> floats(60, 7.0f);
  owned_image some = test::random_image({5, 4}, 3);
  owned_image grey = test::random_image({5, 4}, 1);
  const auto rejected = [&](owned_image& in, const auto& out) {
    return test::rejection([&] { planes(in.view(), out); });
  };
  CHECK(rejected(some, ps::tensor_view<float, 3, 4, 5>{floats.data(), {}}) == "accepted");
  floats.assign(60, 7.0f);
  CHECK(rejected(some, ps::tensor_view<float, 3, 5, 4>{floats.data(), {}}) ==
        "to_chw: expected 3 x 4 x 5 floats for an image of 3 channels, found 3 x 5 x 4");
  CHECK(rejected(some, ps::tensor_view<float, 3, 4, 4>{floats.data(), {}}) != "accepted");
  CHECK(rejected(some, ps::tensor_view<float, 1, 4, 5>{floats.data(), {}}) != "accepted");
  CHECK(rejected(grey, ps::tensor_view<float, 3, 4, 5>{floats.data(), {}}) ==
        "to_chw: expected 3 x 4 x 5 floats for an image of 1 channels, found 3 x 4 x 5");
  CHECK(floats == std::vector<float>(60, 7.0f));
}

TEST_CASE("a scale has finite means and deviations other than 0", "[image]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(test::rejection([] { ps::to_chw{{{0, 0.5f, 0}, {1, 0, 1}}}; }) ==
        "to_chw: expected finite means, and deviations that are not 0, found 0.5 and 0 for channel "
        "1");
  CHECK(test::rejection([&] { ps::to_chw{{{0, 0, nan}, {1, 1, 1}}}; }) != "accepted");
  CHECK(test::rejection([&] { ps::to_chw{{{0, 0, 0}, {nan, 1, 1}}}; }) != "accepted");
}
