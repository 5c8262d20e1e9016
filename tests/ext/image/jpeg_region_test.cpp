// SPDX-License-Identifier: BSL-1.0
// Tests that a region of an image has the same values as the region in the whole image. libjpeg
// decodes the whole image without penstock's code.
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <penstock/order/random.hpp>

#include "ext/image/jpeg_images.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

constexpr std::array samplings{
    test::jpeg_kind{.name = "4:4:4", .across = 1, .down = 1},
    test::jpeg_kind{.name = "4:2:2", .across = 2, .down = 1},
    test::jpeg_kind{.name = "4:2:0", .across = 2, .down = 2},
    test::jpeg_kind{.name = "4:4:0", .across = 1, .down = 2},
    test::jpeg_kind{.name = "4:1:1", .across = 4, .down = 1},
    test::jpeg_kind{.name = "4:1:0", .across = 4, .down = 2},
    test::jpeg_kind{.name = "1x4", .across = 1, .down = 4},
    test::jpeg_kind{.name = "2x4", .across = 2, .down = 4},
    test::jpeg_kind{.name = "3x2", .across = 3, .down = 2},
    test::jpeg_kind{.name = "grey", .across = 1, .down = 1, .components = 1},
    test::jpeg_kind{.name = "RGB 4:2:0", .rgb = true},
    test::jpeg_kind{.name = "finer colour", .across = 1, .down = 1, .finer_colour = true},
};

constexpr std::array sizes{
    ps::image_size{67, 83}, ps::image_size{500, 375}, ps::image_size{131, 64},
    ps::image_size{49, 33}, ps::image_size{7, 200},   ps::image_size{200, 5},
    ps::image_size{1, 1},   ps::image_size{35, 35},
};

// Returns a box of random size and position, often small or at an edge.
ps::image_box some_box(ps::sample_generator& random, const ps::image_size& size) {
  const auto side = [&random](std::size_t whole) {
    const std::size_t max =
        ps::uniform(random, 0, 3) == 0 ? std::min<std::size_t>(whole, 9) : whole;
    const auto length = ps::uniform(random, std::size_t{1}, max);
    std::size_t first = ps::uniform(random, std::size_t{0}, whole - length);
    if (ps::uniform(random, 0, 7) == 0) first = whole - length;
    return std::array{first, length};
  };
  const auto [left, width] = side(size.width);
  const auto [top, height] = side(size.height);
  return {left, top, {width, height}};
}

// Returns true if the region `box` equals the same region of the `whole` image, which has
// `columns` columns.
bool equals_part(const std::vector<std::uint8_t>& whole, ps::jpeg_decoder& decoder,
                 const std::vector<std::byte>& bytes, const ps::image_box& box, std::size_t columns,
                 unsigned denominator = 1) {
  std::vector<std::uint8_t> part(box.size.width * box.size.height * 3, 0xcd);
  decoder.decode(bytes, "a", box, {part.data(), box.size, 3, box.size.width * 3}, denominator);
  for (std::size_t y = 0; y < box.size.height; ++y) {
    const auto* row = part.data() + y * box.size.width * 3;
    const auto* of = whole.data() + ((box.top + y) * columns + box.left) * 3;
    if (!std::equal(row, row + box.size.width * 3, of)) return false;
  }
  return true;
}

// Returns the number of boxes, out of `count`, that differ from the whole image.
int differing(const test::jpeg_kind& kind, const ps::image_size& size, int count,
              unsigned denominator, ps::jpeg_decoder& decoder, ps::sample_generator& random) {
  const auto bytes = test::some_jpeg(size.width, size.height, kind, random());
  const auto whole = test::decode_plainly(bytes, denominator);
  const ps::image_size scaled = ps::detail::scaled_down(size, denominator);
  int differ = 0;
  for (int i = 0; i < count; ++i) {
    const ps::image_box box = some_box(random, scaled);
    if (!equals_part(whole, decoder, bytes, box, scaled.width, denominator)) {
      ++differ;
      UNSCOPED_INFO(kind.name << (kind.progressive ? " progressive " : " ") << size.width << " x "
                              << size.height << " / " << denominator << ": " << box.size.width
                              << " x " << box.size.height << " at " << box.left << ", " << box.top);
    }
  }
  return differ;
}

std::vector<test::jpeg_kind> all_kinds() {
  std::vector<test::jpeg_kind> kinds;
  for (test::jpeg_kind kind : samplings) {
    kinds.push_back(kind);
    kind.optimised = true;
    kind.restart = 1;
    kinds.push_back(kind);
    kind.restart = 0;
    kind.progressive = true;
    kinds.push_back(kind);
  }
  kinds.push_back({.name = "a scan for each component", .separate = true});
  kinds.push_back({.name = "arithmetic", .arithmetic = true});
  kinds.push_back({.name = "arithmetic", .progressive = true, .arithmetic = true});
  return kinds;
}

}  // namespace

TEST_CASE("a part of an image has the values of the whole", "[image][promise:exact-15]") {
  ps::jpeg_decoder decoder;
  ps::sample_generator random{{.seed = 17}, 0};
  for (const test::jpeg_kind& kind : all_kinds()) {
    for (const ps::image_size& size : {sizes[0], sizes[4]}) {
      CHECK(differing(kind, size, 12, 1, decoder, random) == 0);
    }
  }
}

TEST_CASE("a part of a scaled image has the values of the scaled whole", "[image]") {
  ps::jpeg_decoder decoder;
  ps::sample_generator random{{.seed = 18}, 0};
  for (const test::jpeg_kind& kind : all_kinds()) {
    for (const unsigned denominator : {2u, 4u, 8u}) {
      CHECK(differing(kind, {131, 83}, 4, denominator, decoder, random) == 0);
    }
  }
}

TEST_CASE("narrow and low parts at every place have the values of the whole",
          "[image][promise:exact-15]") {
  ps::jpeg_decoder decoder;
  for (const test::jpeg_kind& kind : samplings) {
    for (const ps::image_size& size :
         {ps::image_size{50, 21}, ps::image_size{35, 38}, ps::image_size{8, 9}}) {
      const auto bytes = test::some_jpeg(size.width, size.height, kind);
      const auto whole = test::decode_plainly(bytes);
      for (std::size_t width = 1; width <= 3; ++width) {
        for (std::size_t left = 0; left + width <= size.width; ++left) {
          CHECK(equals_part(whole, decoder, bytes, {left, 0, {width, size.height}}, size.width));
        }
        for (std::size_t top = 0; top + width <= size.height; ++top) {
          CHECK(equals_part(whole, decoder, bytes, {0, top, {size.width, width}}, size.width));
        }
      }
    }
  }
}

// A viewer shows such an image while it is loading. libjpeg smooths the missing scans.
TEST_CASE("a part of a progressive image that lacks scans has the values of the whole",
          "[image][promise:exact-15]") {
  ps::jpeg_decoder decoder;
  ps::sample_generator random{{.seed = 20}, 0};
  auto bytes = test::some_jpeg(131, 140, {.progressive = true, .quality = 30});
  // Truncates the data before the second scan and appends an end marker.
  std::size_t at = 2;
  for (int scans = 0; scans < 2; ++at) {
    if (bytes[at] == std::byte{0xff} && bytes[at + 1] == std::byte{0xda}) ++scans;
  }
  bytes.resize(at - 1);
  bytes.insert(bytes.end(), {std::byte{0xff}, std::byte{0xd9}});
  const auto whole = test::decode_plainly(bytes);
  for (int i = 0; i < 30; ++i) {
    const ps::image_box box = some_box(random, {131, 140});
    CHECK(equals_part(whole, decoder, bytes, box, 131));
  }
}

// Excluded by default, because the test takes minutes. Run it with: penstock_image_tests
// "[exhaustive]"
TEST_CASE("ten thousand parts of each kind of image have the values of the whole",
          "[.][image][exhaustive]") {
  ps::jpeg_decoder decoder;
  ps::sample_generator random{{.seed = 19}, 0};
  for (const test::jpeg_kind& kind : all_kinds()) {
    int differ = 0;
    int tried = 0;
    for (const ps::image_size& size : sizes) {
      for (int image = 0; image < 5; ++image, tried += 250) {
        differ += differing(kind, size, 250, 1, decoder, random);
      }
    }
    WARN(kind.name << (kind.progressive ? " progressive" : "") << (kind.restart ? " restarts" : "")
                   << ": " << differ << " of " << tried << " differ");
    CHECK(differ == 0);
    for (const unsigned denominator : {2u, 4u, 8u}) {
      int scaled = 0;
      for (const ps::image_size& size : sizes) {
        scaled += differing(kind, size, 100, denominator, decoder, random);
      }
      CHECK(scaled == 0);
    }
  }
}
