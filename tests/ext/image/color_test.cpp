// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/augment/color.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <penstock/data/adaptors/map.hpp>
#include <penstock/data/memory_dataset.hpp>
#include <penstock/data/reader.hpp>

#include "data/read_batch.hpp"
#include "ext/image/owned_image.hpp"
#include "ext/image/plans.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::owned_image;
using test::random_of;

namespace {

void change(int op, const ps::pixels& of, double factor) {
  if (op == 0) ps::adjust_brightness(of, factor);
  if (op == 1) ps::adjust_contrast(of, factor);
  if (op == 2) ps::adjust_saturation(of, factor);
  if (op == 3) ps::adjust_hue(of, factor);
  if (op == 4) ps::grayscale{}(of);
}

}  // namespace

TEST_CASE("color changes equal Pillow's", "[image][promise:exact-15]") {
  struct golden {
    int op;
    double factor;
    std::uint64_t sum;
  };
  // Hashes of Pillow 12.3's and 13.0's output, printed by color_pillow.py --golden.
  for (const golden& one : {golden{0, 0.6, 0x24c4f0eab056e283ull},
                            {0, 1.7, 0x2dc0584d0da60100ull},
                            {1, 0.3, 0xbe4140b4a79394c0ull},
                            {1, 2.2, 0x410923cbc92a2ca7ull},
                            {2, 0.45, 0xbb684448c7452286ull},
                            {2, 1.9, 0x997d0866e04ca3e3ull},
                            {3, 0.1, 0x452758f6985793d4ull},
                            {3, -0.37, 0xa07bf075bdbb0b78ull},
                            {4, 0, 0xddbcbc165a1ba5e4ull}}) {
    owned_image some = test::random_image({61, 43}, 3);
    change(one.op, some.view(), one.factor);
    CAPTURE(one.op, one.factor);
    CHECK(test::sum_of(some.bytes) == one.sum);
  }
}

TEST_CASE("colors are changed for a comparison with Pillow", "[.][pillow_colours]") {
  const char* const folder = std::getenv("PENSTOCK_COLOR_CASES");
  REQUIRE(folder != nullptr);
  const std::string path = folder;
  std::ifstream file{path + "/bytes", std::ios::binary};
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::ifstream cases{path + "/cases"};
  std::ofstream results{path + "/results", std::ios::binary};
  int op = 0;
  std::string factor;
  std::size_t offset = 0;
  ps::image_size size;
  while (cases >> op >> factor >> offset >> size.width >> size.height) {
    owned_image some{size, 3};
    for (std::size_t i = 0; i < some.bytes.size(); ++i) {
      some.bytes[i] = static_cast<std::uint8_t>(bytes[offset + i]);
    }
    change(op, some.view(), std::stod(factor));
    results.write(reinterpret_cast<const char*>(some.bytes.data()),
                  static_cast<std::streamsize>(some.bytes.size()));
  }
}

TEST_CASE("a factor of 1 and a turn of 0 leave an image alone", "[image]") {
  const owned_image before = test::random_image({31, 17}, 3);
  for (const int op : {0, 1, 2}) {
    owned_image some = before;
    change(op, some.view(), 1);
    CHECK(some.bytes == before.bytes);
  }
  owned_image empty{{0, 0}, 3};
  for (const int op : {0, 1, 2, 3, 4}) change(op, {nullptr, {0, 0}, 3, 0}, 0.5);
}

TEST_CASE("colors outside the selected part do not change", "[image]") {
  const owned_image before = test::random_image({12, 9}, 3);
  for (const int op : {0, 1, 2, 3, 4}) {
    owned_image some = before;
    const ps::image_box inner{2, 3, {7, 4}};
    change(op, some.view().part(inner), 0.3);
    std::size_t changed = 0;
    for (std::size_t y = 0; y < 9; ++y) {
      for (std::size_t i = 0; i < 36; ++i) {
        const bool inside = y >= 3 && y < 7 && i >= 6 && i < 27;
        const bool same = some.bytes[y * 36 + i] == before.bytes[y * 36 + i];
        REQUIRE((inside || same));
        changed += !same;
      }
    }
    CHECK(changed > 40);
  }
}

TEST_CASE("a jitter draws an order and then factors, the same on every machine", "[image]") {
  const ps::color_jitter jitter{
      {.brightness = 0.4, .contrast = 0.3, .saturation = 0.2, .hue = 0.1}};
  std::set<std::array<std::size_t, 4>> orders;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    ps::sample_generator one = random_of(i);
    ps::sample_generator other = random_of(i);
    owned_image found = test::random_image({9, 7}, 3);
    owned_image expected = found;
    jitter(found.view(), one);
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    for (const std::size_t last : {3u, 2u, 1u}) {
      std::swap(order[last], order[ps::uniform(other, std::size_t{0}, std::size_t{last})]);
    }
    const double factors[] = {ps::uniform(other, 0.6, 1.4), ps::uniform(other, 0.7, 1.3),
                              ps::uniform(other, 0.8, 1.2), ps::uniform(other, -0.1, 0.1)};
    for (const std::size_t op : order) change(static_cast<int>(op), expected.view(), factors[op]);
    REQUIRE(found.bytes == expected.bytes);
    REQUIRE(one() == other());
    orders.insert(order);
    sum = sum * 31 + test::sum_of(found.bytes);
  }
  CHECK(orders.size() == 24);
  CHECK(sum == 0x9bcc2150a49ba903ull);
}

TEST_CASE("a jitter changes only the selected properties", "[image]") {
  const owned_image before = test::random_image({9, 7}, 3);
  const auto values = {ps::color_jitter_options{},
                       {.brightness = 2},
                       {.contrast = 0.5},
                       {.saturation = 0.5},
                       {.hue = 0.5}};
  int op = -1;
  for (const ps::color_jitter_options& options : values) {
    ps::sample_generator one = random_of(5);
    ps::sample_generator other = random_of(5);
    owned_image found = before;
    owned_image expected = before;
    ps::color_jitter{options}(found.view(), one);
    for (const std::size_t last : {3u, 2u, 1u}) {
      static_cast<void>(ps::uniform(other, std::size_t{0}, std::size_t{last}));
    }
    if (op == 0) change(op, expected.view(), ps::uniform(other, 0.0, 3.0));
    if (op == 1 || op == 2) change(op, expected.view(), ps::uniform(other, 0.5, 1.5));
    if (op == 3) change(op, expected.view(), ps::uniform(other, -0.5, 0.5));
    CHECK(found.bytes == expected.bytes);
    CHECK(one() == other());
    ++op;
  }
}

TEST_CASE("colors are changed in a field of a dataset's samples", "[image]") {
  using photo = ps::record<ps::field<"photo", std::uint8_t, 2, 3, 3>, ps::field<"label", int>>;
  const owned_image some = test::random_image({3, 4}, 3);  // holds two images of 2 x 3 pixels
  const std::vector<int> labels{5, 6};
  const ps::memory_dataset<photo> photos{some.bytes, labels};
  const auto grey = photos | ps::map(ps::on_image<"photo">(ps::grayscale{}));
  auto batch = test::read_batch(grey, {1});
  owned_image expected = some;
  ps::grayscale{}(expected.view());
  for (std::size_t i = 0; i < 18; ++i) {
    CHECK(ps::get<"photo">(batch.view()[0]).flat()[i] == expected.bytes[18 + i]);
  }
  CHECK(ps::get<"label">(batch.view()[0]) == 6);
  const auto jittered =
      photos | ps::map(ps::on_image<"photo">(ps::color_jitter{{.brightness = 0.9}}));
  auto other = test::read_batch(jittered, {1});
  CHECK(ps::get<"photo">(other.view()[0]).flat()[0] != some.bytes[18]);
}

TEST_CASE("a view of an image reports its size", "[image]") {
  std::array<std::uint8_t, 24> bytes{};
  const ps::pixels colours =
      ps::as_pixels(ps::tensor_view<std::uint8_t, 2, 4, 3>{bytes.data(), {}});
  CHECK(colours.data == bytes.data());
  CHECK(colours.size == ps::image_size{4, 2});
  CHECK(colours.channels == 3);
  CHECK(colours.pitch == 12);
  const ps::const_pixels grey =
      ps::as_pixels(ps::tensor_view<const std::uint8_t, 4, 6>{bytes.data(), {}});
  CHECK(grey.size == ps::image_size{6, 4});
  CHECK(grey.channels == 1);
  CHECK(grey.pitch == 6);
}

TEST_CASE("arguments of color changes are checked", "[image]") {
  owned_image some = test::random_image({3, 2}, 3);
  owned_image grey = test::random_image({3, 2}, 1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const char* const names[] = {"adjust_brightness", "adjust_contrast", "adjust_saturation"};
  for (const int op : {0, 1, 2}) {
    const std::string name = names[op];
    CHECK(test::rejection([&] { change(op, some.view(), -1); }) ==
          name + ": expected a finite factor >= 0, found -1");
    CHECK(test::rejection([&] { change(op, some.view(), nan); }) != "accepted");
    CHECK(test::rejection([&] { change(op, some.view(), 1e300); }) != "accepted");
  }
  CHECK(test::rejection([&] { ps::adjust_hue(some.view(), 0.6); }) ==
        "adjust_hue: expected a turn from -0.5 to 0.5, found 0.6");
  CHECK(test::rejection([&] { ps::adjust_hue(some.view(), -0.6); }) != "accepted");
  for (const int op : {0, 1, 2, 3, 4}) {
    const std::vector<std::uint8_t> before = grey.bytes;
    CHECK(test::rejection([&] { change(op, grey.view(), 0.5); }) != "accepted");
    CHECK(grey.bytes == before);
  }
  CHECK(test::rejection([&] { ps::grayscale{}(grey.view()); }) ==
        "grayscale: expected an image of 3 channels, found 1");
  ps::sample_generator random = random_of(0);
  CHECK(test::rejection([&] { ps::color_jitter{{}}(grey.view(), random); }) ==
        "color_jitter: expected an image of 3 channels, found 1");
  CHECK(test::rejection([] { ps::color_jitter{{.brightness = -1}}; }) ==
        "color_jitter: expected 0 <= brightness <= 1e+06, found -1");
  CHECK(test::rejection([] { ps::color_jitter{{.contrast = -1}}; }) != "accepted");
  CHECK(test::rejection([] { ps::color_jitter{{.saturation = -1}}; }) != "accepted");
  CHECK(test::rejection([] { ps::color_jitter{{.hue = 0.51}}; }) ==
        "color_jitter: expected 0 <= hue <= 0.5, found 0.51");
}
