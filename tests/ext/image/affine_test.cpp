// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/augment/affine.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "ext/image/owned_image.hpp"
#include "ext/image/plans.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::affine_change;
using ps::affine_filter;
using test::owned_image;
using test::random_of;

namespace {

// Returns a pixel whose channels count up from `first`.
std::array<std::uint8_t, 4> filled(unsigned first) {
  std::array<std::uint8_t, 4> pixel;
  for (std::uint8_t& value : pixel) value = static_cast<std::uint8_t>(first++);
  return pixel;
}

std::vector<std::uint8_t> changed(const owned_image& in, const affine_change& change,
                                  const ps::affine_options& options = {}) {
  owned_image out{in.size, in.channels};
  std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{77});
  ps::affine(in.view(), change, out.view(), options);
  return out.bytes;
}

}  // namespace

TEST_CASE("a rotated image equals Pillow's", "[image][promise:exact-15]") {
  struct golden {
    affine_change change;
    std::uint64_t sums[3];  // for nearest, bilinear and bicubic
  };
  const ps::affine_options options[] = {{affine_filter::nearest, filled(0)},
                                        {affine_filter::bilinear, filled(0)},
                                        {affine_filter::bicubic, filled(200)}};
  const owned_image some = test::random_image({61, 43}, 3);
  // Hashes of Pillow 12.3's and 13.0's output, printed by color_pillow.py --golden.
  for (const golden& one :
       {golden{{0, 3, -2, 1.5, 0, 0},
               {0x7b6b5cda037ef43aull, 0xe4ec31a2bd19ce28ull, 0x75bd9297a755d4faull}},
        {{33, 0, 0, 1, 0, 0},
         {0xedb5667c288b8cffull, 0x214d1365c6775cf9ull, 0xdec9635b53bc81adull}},
        {{-100, 4.25, 5.5, 0.7, 10, -20},
         {0x27f913377725aefeull, 0x8d703927d3b8127bull, 0xab85a2a249dcbf14ull}},
        {{5, 0, 0, 0.001, 0, 0},
         {0x368baece3d15b5afull, 0x368baece3d15b5afull, 0xaf6e53c096a8badfull}},
        {{12, 1, 1, 2, 30, 0},
         {0x0b7c2edf2e242f7full, 0xef336aa666de99b2ull, 0x7221f56c3c9ab43aull}}}) {
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(one.change.angle, one.change.scale, i);
      CHECK(test::sum_of(changed(some, one.change, options[i])) == one.sums[i]);
    }
  }
}

TEST_CASE("images are turned for a comparison with Pillow", "[.][pillow_turns]") {
  const char* const folder = std::getenv("PENSTOCK_COLOR_CASES");
  REQUIRE(folder != nullptr);
  const std::string path = folder;
  std::ifstream file{path + "/bytes", std::ios::binary};
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::ifstream cases{path + "/turns"};
  std::ofstream results{path + "/results", std::ios::binary};
  std::ofstream matrices{path + "/matrices"};
  matrices << std::hexfloat;
  affine_change c;
  std::size_t channels = 0;
  std::size_t offset = 0;
  ps::image_size size;
  int filter = 0;
  unsigned fill = 0;
  while (cases >> channels >> offset >> size.width >> size.height >> c.angle >> c.right >> c.down >>
         c.scale >> c.shear_x >> c.shear_y >> filter >> fill) {
    owned_image some{size, channels};
    for (std::size_t i = 0; i < some.bytes.size(); ++i) {
      some.bytes[i] = static_cast<std::uint8_t>(bytes[offset + i]);
    }
    const auto m = ps::detail::matrix_of(c, size);
    for (const double value : {m.xx, m.xy, m.x0, m.yx, m.yy, m.y0}) matrices << value << ' ';
    matrices << '\n';
    const std::vector<std::uint8_t> found =
        changed(some, c, {static_cast<affine_filter>(filter), filled(fill)});
    results.write(reinterpret_cast<const char*>(found.data()),
                  static_cast<std::streamsize>(found.size()));
  }
}

TEST_CASE("an image that is only shifted moves by whole pixels", "[image]") {
  owned_image some = test::random_image({9, 7}, 4);
  CHECK(changed(some, {}) == some.bytes);
  const std::vector<std::uint8_t> found = changed(some, {.right = 2, .down = -3});
  for (std::size_t y = 0; y < 7; ++y) {
    for (std::size_t i = 0; i < 36; ++i) {
      const bool inside = y < 4 && i >= 8;
      REQUIRE(found[y * 36 + i] == (inside ? some.bytes[(y + 3) * 36 + i - 8] : 0));
    }
  }
}

TEST_CASE("an image that is only scaled is stepped through by doubles, as Pillow does", "[image]") {
  std::size_t by_fixed_steps = 0;
  for (std::size_t width = 1; width < 120; ++width) {
    for (const double scale : {0.6, 0.75, 1.2, 1.5}) {
      const owned_image in = test::random_image({width, 1}, 1);
      const std::vector<std::uint8_t> found = changed(in, {.scale = scale});
      const double middle = static_cast<double>(width) * 0.5;
      const double step = 1 / scale;
      double at = ps::detail::rounded(step * -middle) + middle + step * 0.5;
      auto fixed = static_cast<std::int64_t>(std::floor(at * 65536 + 0.5));
      for (std::size_t x = 0; x < width; ++x, at += step) {
        const bool inside = at >= 0 && at < static_cast<double>(width);
        const int expected = inside ? in.bytes[static_cast<std::size_t>(at)] : 0;
        REQUIRE(found[x] == expected);
        by_fixed_steps += inside && fixed >> 16 != static_cast<std::int64_t>(at);
        fixed += static_cast<std::int64_t>(std::floor(step * 65536 + 0.5));
      }
    }
  }
  CHECK(by_fixed_steps > 0);
}

TEST_CASE("interpolated pixels repeat the edge, and the outside is filled",
          "[image][promise:exact-15]") {
  const owned_image some = test::random_image({9, 7}, 3);
  const std::array<std::uint8_t, 4> red{200, 10, 20, 0};
  for (const affine_filter filter : {affine_filter::bilinear, affine_filter::bicubic}) {
    CHECK(changed(some, {}, {filter, red}) == some.bytes);
    const std::vector<std::uint8_t> found = changed(some, {.right = 2, .down = -3}, {filter, red});
    for (std::size_t y = 0; y < 7; ++y) {
      for (std::size_t i = 0; i < 27; ++i) {
        const bool inside = y < 4 && i >= 6;
        REQUIRE(found[y * 27 + i] == (inside ? some.bytes[(y + 3) * 27 + i - 6] : red[i % 3]));
      }
    }
    // An image of a single color keeps the color, even at its edge.
    owned_image even{{30, 20}, 1};
    std::fill(even.bytes.begin(), even.bytes.end(), std::uint8_t{201});
    CHECK(changed(even, {.scale = 3.3}, {filter}) == even.bytes);
    owned_image dot{{1, 1}, 4};
    dot.bytes = {1, 2, 3, 4};
    CHECK(changed(dot, {.angle = 45}, {filter}) == dot.bytes);
  }
}

TEST_CASE("a square rotated four times is unchanged", "[image]") {
  owned_image some = test::random_image({8, 8}, 1);
  owned_image turned = some;
  for (int i = 0; i < 4; ++i) {
    turned.bytes = changed(turned, {.angle = 90});
    CHECK((turned.bytes == some.bytes) == (i == 3));
  }
  CHECK(changed(some, {.angle = 90}) == changed(some, {.angle = -270}));
  CHECK(changed(some, {.angle = 360}) == some.bytes);
}

TEST_CASE("a random rotation draws within its options, the same on every machine", "[image]") {
  const ps::random_affine turn{{.degrees = 30,
                                .translate_x = 0.1,
                                .translate_y = 0.2,
                                .scale_low = 0.8,
                                .scale_high = 1.3,
                                .shear_x = 5,
                                .shear_y = 6}};
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    ps::sample_generator one = random_of(i);
    ps::sample_generator other = random_of(i);
    ps::sample_generator third = random_of(i);
    const affine_change found = turn.draw({50, 40}, one);
    CHECK(found.angle == ps::uniform(other, -30.0, 30.0));
    CHECK(found.right == std::nearbyint(ps::uniform(other, -5.0, 5.0)));
    CHECK(found.down == std::nearbyint(ps::uniform(other, -8.0, 8.0)));
    CHECK(found.scale == ps::uniform(other, 0.8, 1.3));
    CHECK(found.shear_x == ps::uniform(other, -5.0, 5.0));
    CHECK(found.shear_y == ps::uniform(other, -6.0, 6.0));
    CHECK(one() == other());
    const owned_image some = test::random_image({50, 40}, 1);
    owned_image out{{50, 40}, 1};
    turn(some.view(), out.view(), third);
    CHECK(out.bytes == changed(some, found));
    sum = sum * 31 + test::sum_of(out.bytes);
  }
  CHECK(sum == 0x11291d660c256110ull);
  const ps::affine_options smooth{affine_filter::bicubic, {1, 2, 3, 4}};
  const ps::random_affine smooth_turn{{.degrees = 30, .sampling = smooth}};
  ps::sample_generator drawn = random_of(9);
  ps::sample_generator used = random_of(9);
  const owned_image before = test::random_image({50, 40}, 1);
  owned_image after{{50, 40}, 1};
  smooth_turn(before.view(), after.view(), used);
  CHECK(after.bytes == changed(before, smooth_turn.draw({50, 40}, drawn), smooth));
  ps::sample_generator one = random_of(7);
  ps::sample_generator other = random_of(7);
  const affine_change none = ps::random_affine{{}}.draw({50, 40}, one);
  CHECK(one() == other());
  CHECK((none.angle == 0 && none.right == 0 && none.scale == 1 && none.shear_y == 0));
}

TEST_CASE("arguments of rotations are checked", "[image]") {
  const owned_image some = test::random_image({5, 4}, 3);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto rejected = [&](const affine_change& change) {
    return test::rejection([&] { static_cast<void>(changed(some, change)); });
  };
  CHECK(rejected({.scale = 0}) ==
        "affine: expected finite numbers, scale > 0, -90 < shear < 90, found scale = 0, shear = 0, "
        "0");
  CHECK(rejected({.angle = nan}) != "accepted");
  CHECK(rejected({.right = nan}) != "accepted");
  CHECK(rejected({.down = nan}) != "accepted");
  CHECK(rejected({.scale = nan}) != "accepted");
  CHECK(rejected({.scale = std::numeric_limits<double>::infinity()}) != "accepted");
  CHECK(rejected({.shear_x = 90}) != "accepted");
  CHECK(rejected({.shear_y = -90}) != "accepted");
  owned_image low{{5, 3}, 3};
  CHECK(test::rejection([&] { ps::affine(some.view(), {}, low.view()); }) ==
        "affine: expected two images of the same size and 1, 3 or 4 channels, found 5 x 4 x 3 and "
        "5 x "
        "3 x 3");
  owned_image none{{0, 3}, 3};
  CHECK(test::rejection([&] { ps::affine(none.view(), {}, none.view()); }) ==
        "affine: expected sides of 1 to 2^24 pixels, found 0 x 3");
  owned_image grey{{5, 4}, 1};
  CHECK(test::rejection([&] { ps::affine(some.view(), {}, grey.view()); }) != "accepted");
  owned_image two{{5, 4}, 2};
  CHECK(test::rejection([&] { ps::affine(two.view(), {}, two.view()); }) != "accepted");
  CHECK(test::rejection([] { ps::random_affine{{.degrees = -1}}; }) ==
        "random_affine: expected 0 <= degrees <= 360, found -1");
  CHECK(test::rejection([] { ps::random_affine{{.translate_x = 1.1}}; }) != "accepted");
  CHECK(test::rejection([] { ps::random_affine{{.translate_y = 1.1}}; }) != "accepted");
  CHECK(test::rejection([] { ps::random_affine{{.scale_low = 0}}; }) != "accepted");
  CHECK(test::rejection([] { ps::random_affine{{.scale_low = 2}}; }) ==
        "random_affine: expected 2 <= scale_high <= 1000, found 1");
  CHECK(test::rejection([] { ps::random_affine{{.shear_x = 90}}; }) != "accepted");
  CHECK(test::rejection([] { ps::random_affine{{.shear_y = 90}}; }) != "accepted");
}
