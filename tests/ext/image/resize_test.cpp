// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/resize.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "ext/image/owned_image.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::image_box;
using ps::image_plan;
using ps::image_size;
using test::owned_image;

namespace {

constexpr ps::detail::resample_path plain = ps::detail::resample_path::plain;

owned_image resized(ps::resizer& resize, const owned_image& in, const image_plan& plan) {
  owned_image out{plan.size(), in.channels};
  resize(in.view(), plan, out.view());
  return out;
}

image_plan whole(const image_box& crop, const image_size& to) { return {crop, to, {0, 0, to}}; }

struct golden {
  ps::resize_filter filter;
  ps::pass_order order;
  std::array<std::uint64_t, 5> sums;
};

// Hashes of Pillow 12.3's and 13.0's output for the same images, printed by resize_pillow.py
// --golden.
constexpr golden goldens[] = {
    {ps::resize_filter::nearest,
     ps::pass_order::horizontal_first,
     {0x6c5515349672d994ull, 0x640c6d7fd98c5486ull, 0xf622ef4cf99f5407ull, 0x0a309008fe19c845ull,
      0xee96aad51178ae9dull}},
    {ps::resize_filter::nearest,
     ps::pass_order::by_shrink,
     {0x6c5515349672d994ull, 0x640c6d7fd98c5486ull, 0xf622ef4cf99f5407ull, 0x0a309008fe19c845ull,
      0xee96aad51178ae9dull}},
    {ps::resize_filter::box,
     ps::pass_order::horizontal_first,
     {0x1217f0786dcc5d9bull, 0xcb82907685a2930dull, 0x07c84cfdfd6a1434ull, 0x5e51430ea7e56a79ull,
      0xf5f4c2b1b0357f8dull}},
    {ps::resize_filter::box,
     ps::pass_order::by_shrink,
     {0x1217f0786dcc5d9bull, 0xcb82907685a2930dull, 0x07c84cfdfd6a1434ull, 0x5e51430ea7e56a79ull,
      0xf5f4c2b1b0357f8dull}},
    {ps::resize_filter::bilinear,
     ps::pass_order::horizontal_first,
     {0xfb66d3ba8c17cba8ull, 0x73e93cc20e323b03ull, 0x0e6deab207974f72ull, 0xfa2e94b214c0fba7ull,
      0x9b298e60adcd16f2ull}},
    {ps::resize_filter::bilinear,
     ps::pass_order::by_shrink,
     {0xfb66d3ba8c17cba8ull, 0x4232984d64dd109full, 0x0e6deab207974f72ull, 0xfa2e94b214c0fba7ull,
      0x9b298e60adcd16f2ull}},
    {ps::resize_filter::hamming,
     ps::pass_order::horizontal_first,
     {0xc487a695e64b7629ull, 0x774cbbc77c39b983ull, 0x5be914f0657b1b29ull, 0x2a77fe8fd0fbda11ull,
      0x920bb1e6d35da319ull}},
    {ps::resize_filter::hamming,
     ps::pass_order::by_shrink,
     {0xc487a695e64b7629ull, 0xecb1b8b13aeb9eebull, 0x5be914f0657b1b29ull, 0x2a77fe8fd0fbda11ull,
      0x920bb1e6d35da319ull}},
    {ps::resize_filter::bicubic,
     ps::pass_order::horizontal_first,
     {0x8a2c2ce4a3dab5adull, 0x21ff143ea370c800ull, 0x75ac0ab59798df74ull, 0x969b71b792c8ad7bull,
      0x8ccb08ff6898ce07ull}},
    {ps::resize_filter::bicubic,
     ps::pass_order::by_shrink,
     {0x8a2c2ce4a3dab5adull, 0x198b7584e826a965ull, 0x75ac0ab59798df74ull, 0x969b71b792c8ad7bull,
      0x8ccb08ff6898ce07ull}},
    {ps::resize_filter::lanczos,
     ps::pass_order::horizontal_first,
     {0xb0cc54b3ca12dab8ull, 0x00cd29eb63f86b60ull, 0xca351dae5a130675ull, 0xa76728843dd3155full,
      0x3b32f4df09c74d89ull}},
    {ps::resize_filter::lanczos,
     ps::pass_order::by_shrink,
     {0xb0cc54b3ca12dab8ull, 0x22395d76e65b5eb9ull, 0xca351dae5a130675ull, 0xa76728843dd3155full,
      0x3b32f4df09c74d89ull}},
};

constexpr ps::resize_filter filters[] = {ps::resize_filter::nearest,  ps::resize_filter::box,
                                         ps::resize_filter::bilinear, ps::resize_filter::hamming,
                                         ps::resize_filter::bicubic,  ps::resize_filter::lanczos};

// Returns a random plan with sides of up to `max`. Some plans leave a side unchanged.
image_plan random_plan(std::mt19937& bits, const image_size& size, std::size_t max) {
  const auto upto = [&bits](std::size_t high) { return 1 + bits() % high; };
  const auto part = [&](const image_size& of) {
    const std::size_t left = upto(of.width) - 1;
    const std::size_t top = upto(of.height) - 1;
    return image_box{left, top, {upto(of.width - left), upto(of.height - top)}};
  };
  image_plan plan;
  plan.crop = part(size);
  plan.scaled = {bits() % 8 == 0 ? plan.crop.size.width : upto(max),
                 bits() % 8 == 0 ? plan.crop.size.height : upto(max)};
  plan.kept = part(plan.scaled);
  plan.mirrored = bits() % 2 == 0;
  return plan;
}

}  // namespace

TEST_CASE("a resized image has Pillow's bits", "[image][promise:exact-15]") {
  for (const golden& one : goldens) {
    const auto path = GENERATE(ps::detail::fastest_resample_path(), plain);
    ps::resizer resize{{one.filter, one.order}, path};
    const owned_image rgb = test::random_image({97, 71}, 3);
    const owned_image grey = test::random_image({97, 71}, 1);
    const owned_image four = test::random_image({97, 71}, 4);
    CAPTURE(static_cast<int>(one.filter), static_cast<int>(one.order), static_cast<int>(path));
    CHECK(test::sum_of(resized(resize, rgb, whole({0, 0, {97, 71}}, {40, 30})).bytes) ==
          one.sums[0]);
    CHECK(test::sum_of(resized(resize, rgb, whole({5, 3, {80, 66}}, {150, 33})).bytes) ==
          one.sums[1]);
    CHECK(test::sum_of(resized(resize, grey, whole({0, 0, {97, 71}}, {31, 100})).bytes) ==
          one.sums[2]);
    CHECK(test::sum_of(resized(resize, four, whole({1, 0, {90, 71}}, {90, 20})).bytes) ==
          one.sums[3]);
    // The crop is more than a hundred times as high as wide.
    const owned_image tall = test::random_image({97, 203}, 3);
    CHECK(test::sum_of(resized(resize, tall, whole({7, 1, {2, 201}}, {30, 200})).bytes) ==
          one.sums[4]);
  }
}

TEST_CASE("a kept, mirrored part equals that part of the whole", "[image][promise:exact-15]") {
  std::mt19937 bits{1};
  for (const ps::resize_filter filter : filters) {
    for (const ps::pass_order order :
         {ps::pass_order::horizontal_first, ps::pass_order::by_shrink}) {
      ps::resizer resize{{filter, order}};
      for (int round = 0; round < 30; ++round) {
        const std::size_t channels = std::array{1u, 3u, 4u}[bits() % 3];
        const owned_image in = test::random_image({1 + bits() % 60, 1 + bits() % 60}, channels);
        const image_plan plan = random_plan(bits, in.size, 60);
        const owned_image part = resized(resize, in, plan);
        // Uses a second resizer with plain loops, so that the two resizers share no tables.
        ps::resizer other{{filter, order}, plain};
        owned_image all = resized(other, in, whole(plan.crop, plan.scaled));
        owned_image expected{plan.kept.size, channels};
        for (std::size_t y = 0; y < expected.size.height; ++y) {
          for (std::size_t x = 0; x < expected.size.width; ++x) {
            const std::size_t from = plan.mirrored ? expected.size.width - 1 - x : x;
            for (std::size_t c = 0; c < channels; ++c) {
              expected.at(x, y, c) = all.at(plan.kept.left + from, plan.kept.top + y, c);
            }
          }
        }
        REQUIRE(part.bytes == expected.bytes);
      }
    }
  }
}

TEST_CASE("a crop is resized as if there were nothing around it", "[image][promise:exact-15]") {
  std::mt19937 bits{2};
  for (const ps::resize_filter filter : filters) {
    ps::resizer resize{{filter}};
    for (int round = 0; round < 20; ++round) {
      const owned_image in = test::random_image({1 + bits() % 60, 1 + bits() % 60}, 3);
      image_plan plan = random_plan(bits, in.size, 60);
      owned_image alone{plan.crop.size, 3, 7};
      for (std::size_t y = 0; y < alone.size.height; ++y) {
        std::copy_n(in.view().part(plan.crop).row(y), alone.size.width * 3, alone.view().row(y));
      }
      const owned_image expected = resized(resize, in, plan);
      plan.crop.left = 0;
      plan.crop.top = 0;
      REQUIRE(resized(resize, alone, plan).bytes == expected.bytes);
    }
  }
}

TEST_CASE("a resizer writes only its destination", "[image]") {
  std::mt19937 bits{3};
  for (const ps::resize_filter filter : filters) {
    for (const auto path : {ps::detail::fastest_resample_path(), plain}) {
      ps::resizer resize{{filter, ps::pass_order::by_shrink}, path};
      for (int round = 0; round < 20; ++round) {
        const std::size_t channels = std::array{1u, 3u, 4u}[bits() % 3];
        const owned_image in = test::random_image({1 + bits() % 40, 1 + bits() % 40}, channels);
        const image_plan plan = random_plan(bits, in.size, 40);
        const owned_image expected = resized(resize, in, plan);
        owned_image sheet{{44, 44}, channels};
        const owned_image before = sheet = test::random_image(sheet.size, channels, 5);
        const image_box place{2, 2, plan.size()};
        resize(in.view(), plan, sheet.view().part(place));
        for (std::size_t y = 0; y < place.size.height; ++y) {
          const std::uint8_t* const row = sheet.view().part(place).row(y);
          REQUIRE(std::equal(row, row + place.size.width * channels,
                             expected.bytes.data() + y * expected.pitch));
          std::copy_n(before.view().part(place).row(y), place.size.width * channels,
                      sheet.view().part(place).row(y));
        }
        REQUIRE(sheet.bytes == before.bytes);
      }
    }
  }
}

TEST_CASE("a border is zeros and is mirrored with the rest", "[image]") {
  const owned_image in = test::random_image({20, 10}, 3);
  for (const ps::resize_filter filter : {ps::resize_filter::nearest, ps::resize_filter::bilinear}) {
    ps::resizer resize{{filter}};
    image_plan plan = whole({0, 0, {20, 10}}, {12, 14});
    owned_image inner = resized(resize, in, plan);
    plan.border = {1, 2, 3, 4};
    CHECK(plan.size() == image_size{16, 20});
    for (const bool mirrored : {false, true}) {
      plan.mirrored = mirrored;
      owned_image out{plan.size(), 3};
      std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{77});
      resize(in.view(), plan, out.view());
      std::size_t wrong = 0;
      for (std::size_t y = 0; y < 20; ++y) {
        for (std::size_t to = 0; to < 16; ++to) {
          const std::size_t x = mirrored ? 15 - to : to;
          const bool inside = x >= 1 && x < 13 && y >= 2 && y < 16;
          for (std::size_t c = 0; c < 3; ++c) {
            wrong += out.at(to, y, c) != (inside ? inner.at(x - 1, y - 2, c) : 0);
          }
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("the order of the passes depends on the cost", "[image][promise:exact-15]") {
  struct order_case {
    ps::pass_order order;
    image_size from;
    image_size to;
    bool vertical_first;
  };
  constexpr ps::pass_order old = ps::pass_order::horizontal_first;
  constexpr ps::pass_order by_shrink = ps::pass_order::by_shrink;
  for (const order_case& one : {order_case{old, {80, 66}, {70, 20}, false},
                                {old, {2, 200}, {30, 150}, false},
                                {old, {2, 201}, {30, 150}, true},
                                {old, {2, 201}, {30, 260}, false},
                                {by_shrink, {80, 66}, {70, 46}, false},
                                {by_shrink, {80, 66}, {70, 45}, true},
                                {by_shrink, {10, 50}, {40, 60}, false},
                                {by_shrink, {10, 50}, {40, 49}, true},
                                {by_shrink, {90, 50}, {40, 30}, false}}) {
    ps::resizer resize{{ps::resize_filter::bicubic, one.order}};
    const owned_image in = test::random_image(one.from, 3);
    const auto after = [&](const image_size& between) {
      const owned_image half = resized(resize, in, whole({0, 0, one.from}, between));
      return resized(resize, half, whole({0, 0, between}, one.to)).bytes;
    };
    const auto horizontal = after({one.to.width, one.from.height});
    const auto vertical = after({one.from.width, one.to.height});
    const auto found = resized(resize, in, whole({0, 0, one.from}, one.to)).bytes;
    CAPTURE(one.from.height, one.to.height);
    CHECK(horizontal != vertical);
    CHECK(found == (one.vertical_first ? vertical : horizontal));
  }
}

TEST_CASE("a single color is preserved for any size", "[image]") {
  for (const ps::resize_filter filter : filters) {
    ps::resizer resize{{filter}};
    for (const image_size& from : {image_size{1, 1}, {300, 1}, {1, 300}, {7, 5}}) {
      for (const image_size& to : {image_size{1, 1}, {1, 90}, {90, 1}, {33, 17}}) {
        for (const std::uint8_t value : {std::uint8_t{0}, std::uint8_t{254}, std::uint8_t{255}}) {
          owned_image in{from, 3};
          std::fill(in.bytes.begin(), in.bytes.end(), value);
          owned_image out{to, 3};
          resize(in.view(), out.view());
          REQUIRE(std::all_of(out.bytes.begin(), out.bytes.end(),
                              [value](std::uint8_t found) { return found == value; }));
        }
      }
    }
  }
}

TEST_CASE("mismatched sizes are rejected before a byte is written", "[image]") {
  const owned_image in = test::random_image({20, 10}, 3);
  ps::resizer resize;
  CHECK(resize.options().filter == ps::resize_filter::bilinear);
  CHECK(resize.options().order == ps::pass_order::horizontal_first);
  const image_plan good{{1, 2, {19, 8}}, {30, 40}, {3, 4, {27, 36}}};
  const auto rejected = [&](const image_plan& plan, const owned_image& from, owned_image to) {
    const std::vector<std::uint8_t> before = to.bytes;
    try {
      resize(from.view(), plan, to.view());
    } catch (const std::invalid_argument& problem) {
      CHECK(to.bytes == before);
      return std::string{problem.what()};
    }
    return std::string{"accepted"};
  };
  const owned_image out{{27, 36}, 3};
  CHECK(rejected(good, in, out) == "accepted");
  CHECK(rejected(good, in, owned_image{{27, 36}, 1}) ==
        "resizer: expected 1, 3 or 4 channels in both images, found 3 and 1");
  CHECK(rejected(good, test::random_image({20, 10}, 2), owned_image{{27, 36}, 2}) ==
        "resizer: expected 1, 3 or 4 channels in both images, found 2 and 2");
  CHECK(rejected(good, in, owned_image{{27, 35}, 3}) ==
        "resizer: expected a place for 27 x 36 pixels, found 27 x 35");
  image_plan bad = good;
  bad.crop.size.width = 20;
  CHECK(rejected(bad, in, out) ==
        "resizer: expected a crop inside the image of 20 x 10, found 20 x 8 at (1, 2)");
  for (const image_box& crop : {image_box{20, 2, {1, 1}},
                                {21, 2, {1, 1}},
                                {0, 11, {1, 1}},
                                {0, 10, {1, 1}},
                                {0, 0, {0, 1}},
                                {0, 0, {1, 0}},
                                {1, 0, {~std::size_t{0}, 1}},
                                {0, 3, {1, 8}}}) {
    bad.crop = crop;
    CHECK(rejected(bad, in, out) != "accepted");
  }
  bad = good;
  bad.kept.top = 5;
  CHECK(rejected(bad, in, out) ==
        "resizer: expected a kept part inside the scaled crop of 30 x 40, found 27 x 36 at (3, 5)");
  bad = good;
  for (const image_size& scaled :
       {image_size{0, 40}, {30, 0}, {(1u << 24) + 1, 40}, {30, (1u << 24) + 1}}) {
    bad.scaled = scaled;
    CHECK(rejected(bad, in, out) == "resizer: expected sides of 1 to 2^24 pixels, found " +
                                        std::to_string(scaled.width) + " x " +
                                        std::to_string(scaled.height));
  }
}

TEST_CASE("a mutable pixel view converts to a const one, not the reverse", "[image]") {
  CHECK(std::is_convertible_v<ps::pixels, ps::const_pixels>);
  CHECK_FALSE(std::is_convertible_v<ps::const_pixels, ps::pixels>);
}
