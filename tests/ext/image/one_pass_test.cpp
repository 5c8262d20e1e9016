// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/augment/one_pass.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <penstock/core/tensor_view.hpp>
#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock_ext/image/resize.hpp>

#include "data/read_batch.hpp"
#include "ext/image/owned_image.hpp"
#include "ext/image/plans.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::owned_image;
using test::random_of;

namespace {

const ps::random_affine slanted{{.degrees = 40,
                                 .translate_x = 0.1,
                                 .scale_low = 0.7,
                                 .scale_high = 1.4,
                                 .sampling = {ps::affine_filter::bilinear, {9, 8, 7, 6}}}};
const ps::color_jitter colourful{
    {.brightness = 0.4, .contrast = 0.5, .saturation = 0.3, .hue = 0.2}};

// Returns the image after `step`, computed with the functions that one_pass combines.
owned_image after(const ps::random_affine& step, const owned_image& in,
                  ps::sample_generator& random) {
  owned_image out{in.size, 3};
  step(in.view(), out.view(), random);
  return out;
}

template <ps::image_geometry Geometry>
owned_image after(const Geometry& step, const owned_image& in, ps::sample_generator& random) {
  const ps::image_plan plan = step.plan(in.size, random);
  owned_image out{plan.size(), 3};
  ps::resizer{}(in.view(), plan, out.view());
  return out;
}

owned_image after(const ps::random_flip& flip, const owned_image& in,
                  ps::sample_generator& random) {
  return after(ps::center_crop{in.size} | flip, in, random);
}

owned_image after(const ps::color_jitter& step, owned_image in, ps::sample_generator& random) {
  step(in.view(), random);
  return in;
}

owned_image after(const ps::grayscale& step, owned_image in, ps::sample_generator&) {
  step(in.view());
  return in;
}

template <class... Steps>
void compare(const owned_image& in, std::uint64_t seed, const Steps&... steps) {
  ps::sample_generator one = random_of(seed);
  ps::sample_generator other = random_of(seed);
  owned_image expected = in;
  ((expected = after(steps, expected, other)), ...);
  CAPTURE(seed, in.size.width, in.size.height);
  // There is a gap between the rows, in which writes outside the rows are detected.
  owned_image out{expected.size, 3, 5};
  std::fill(out.bytes.begin(), out.bytes.end(), std::uint8_t{77});
  ps::one_pass{steps...}(in.view(), out.view(), one);
  CHECK(one() == other());
  for (std::size_t y = 0; y < out.size.height; ++y) {
    const auto row = out.bytes.begin() + static_cast<std::ptrdiff_t>(y * out.pitch);
    const std::size_t width = out.size.width * 3;
    REQUIRE(std::equal(row, row + static_cast<std::ptrdiff_t>(width),
                       expected.bytes.begin() + static_cast<std::ptrdiff_t>(y * width)));
    if (y + 1 < out.size.height) REQUIRE(row[static_cast<std::ptrdiff_t>(width)] == 77);
  }

  const ps::to_chw planes{{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}}};
  std::vector<float> wanted(expected.bytes.size());
  std::vector<float> found(expected.bytes.size());
  const ps::extents<3, ps::dyn, ps::dyn> lengths{out.size.height, out.size.width};
  using view = ps::tensor_view<float, 3, ps::dyn, ps::dyn>;
  planes(expected.view(), view{wanted.data(), lengths});
  ps::sample_generator again = random_of(seed);
  ps::one_pass{steps..., planes}(in.view(), view{found.data(), lengths}, again);
  REQUIRE(found == wanted);
}

template <class... Steps>
concept is_pass = ps::detail::is_a_pass<Steps...>();

}  // namespace

TEST_CASE("one pass gives the same bits as its separate steps", "[image][promise:exact-15]") {
  // A row of the fourth size is so wide that it has several stripes. The last size is smaller than
  // the crop.
  const ps::image_size in_sizes[] = {{31, 24}, {24, 33}, {40, 24}, {1100, 26}, {24, 20}};
  const auto crop = ps::random_crop{24, {.padding = 3}} | ps::random_flip{};
  std::uint64_t seed = 0;
  for (const ps::image_size& size : in_sizes) {
    const owned_image in = test::random_image(size, 3, static_cast<std::uint32_t>(size.width));
    for (int i = 0; i < 4; ++i, ++seed) {
      compare(in, seed, slanted);
      compare(in, seed, slanted, crop, colourful);
      compare(in, seed, slanted, ps::random_flip{}, colourful, ps::grayscale{}, colourful);
      compare(in, seed, ps::random_flip{1}, ps::grayscale{});
      compare(in, seed, ps::center_crop{{19, 40}} | ps::random_flip{}, colourful);
    }
  }
}

TEST_CASE("one pass turns by each filter", "[image][promise:exact-15]") {
  const owned_image in = test::random_image({50, 40}, 3);
  for (const auto filter :
       {ps::affine_filter::nearest, ps::affine_filter::bilinear, ps::affine_filter::bicubic}) {
    const std::array<std::uint8_t, 4> fill{1, 2, 3, 4};
    // A pure scale uses double increments, and a rotation uses fixed-point increments.
    const ps::random_affine scaled{
        {.scale_low = 0.6, .scale_high = 0.9, .sampling = {filter, fill}}};
    const ps::random_affine turned{{.degrees = 90, .sampling = {filter, fill}}};
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      compare(in, seed, scaled, ps::random_crop{{20, 30}} | ps::random_flip{});
      compare(in, seed, turned, ps::random_crop{{20, 30}} | ps::random_flip{});
    }
  }
}

TEST_CASE("one pass reads samples of a dataset", "[image]") {
  using bytes = ps::record<ps::field<"image", std::uint8_t, 4, 6, 3>>;
  using floats = ps::record<ps::field<"x", float, 3, 4, 4>>;
  const owned_image two = test::random_image({6, 8}, 3);
  const ps::memory_dataset<bytes> photos{two.bytes};
  const ps::one_pass augment{ps::center_crop{4} | ps::random_flip{},
                             ps::color_jitter{{.brightness = 0.4}}, ps::to_chw{}};
  const auto made = photos | ps::map<floats>([augment](auto in, auto out, auto& random) {
                      augment(ps::as_pixels(ps::get<"image">(in)), ps::get<"x">(out), random);
                    });
  auto batch = test::read_batch(made, {1});
  const auto found = batch.get<"x">().flat();
  // Brightness changes all values by the same factor, and flipping the image does not change their
  // sum.
  double sum = 0;
  double before = 0;
  for (const float value : found) sum += double{value};
  for (std::size_t y = 0; y < 4; ++y) {
    for (std::size_t i = 0; i < 12; ++i) before += two.view().row(4 + y)[3 + i] / 255.0;
  }
  CHECK(found.size() == 48);
  CHECK((sum > 0.55 * before && sum < 1.41 * before));
}

TEST_CASE("one_pass accepts steps in one order and no steps that resize", "[image]") {
  STATIC_REQUIRE(is_pass<ps::to_chw>);
  STATIC_REQUIRE(is_pass<ps::color_jitter, ps::grayscale, ps::color_jitter>);
  STATIC_REQUIRE(!is_pass<>);
  STATIC_REQUIRE(!is_pass<ps::to_chw, ps::to_chw>);
  STATIC_REQUIRE(!is_pass<ps::random_affine, ps::random_affine>);
  STATIC_REQUIRE(!is_pass<ps::center_crop, ps::random_affine>);
  STATIC_REQUIRE(!is_pass<ps::color_jitter, ps::random_flip>);
  STATIC_REQUIRE(!is_pass<ps::center_crop, ps::random_flip>);
  STATIC_REQUIRE(!is_pass<ps::whole>);
  STATIC_REQUIRE(!is_pass<ps::detail::flipped_geometry<ps::whole>>);
}

TEST_CASE("images that one_pass cannot read or write are rejected", "[image]") {
  const owned_image in = test::random_image({5, 4}, 3);
  const owned_image grey = test::random_image({5, 4}, 1);
  const owned_image none{{0, 4}, 3};
  owned_image out{{5, 4}, 3};
  owned_image small{{4, 4}, 3};
  owned_image thin{{5, 4}, 1};
  const ps::one_pass mirror{ps::random_flip{}};
  const ps::one_pass planes{ps::to_chw{}};
  ps::sample_generator random = random_of(1);
  const auto rejected = [&](const owned_image& from, owned_image& to) {
    return test::rejection([&] { mirror(from.view(), to.view(), random); });
  };
  CHECK(rejected(in, out) == "accepted");
  CHECK(rejected(grey, out) == "one_pass: expected an image of 3 channels, found 1");
  CHECK(rejected(none, out) == "one_pass: expected sides of 1 to 2^24 pixels, found 0 x 4");
  CHECK(rejected(in, small) == "one_pass: expected to write 5 x 4 x 3, found 4 x 4 x 3");
  CHECK(rejected(in, thin) == "one_pass: expected to write 5 x 4 x 3, found 5 x 4 x 1");
  std::vector<float> floats(60);
  CHECK(test::rejection([&] {
          planes(in.view(), ps::tensor_view<float, 3, 5, 4>{floats.data(), {}}, random);
        }) == "to_chw: expected 3 x 4 x 5 floats for an image of 3 channels, found 3 x 5 x 4");
  CHECK_THROWS_AS(ps::one_pass{ps::random_crop{6}}(in.view(), out.view(), random),
                  ps::image_too_small);
}
