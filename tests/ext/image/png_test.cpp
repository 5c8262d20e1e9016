// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/png/png.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>

#include "ext/image/blobs.hpp"
#include "ext/image/decoded.hpp"
#include "ext/image/png_images.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::encoded;

namespace {

template <class E>
E png_error(const encoded& bytes, const ps::png_options& options = {}) {
  return test::decode_error<E>(ps::png_decoder{options}, bytes);
}

std::vector<test::png_kind> all_png_kinds() {
  std::vector<test::png_kind> kinds;
  for (const bool interlaced : {false, true}) {
    for (const unsigned depth : {1u, 2u, 4u, 8u, 16u}) kinds.push_back({0, depth, interlaced});
    for (const unsigned depth : {1u, 2u, 4u, 8u}) kinds.push_back({3, depth, interlaced});
    for (const unsigned color : {2u, 4u, 6u}) {
      for (const unsigned depth : {8u, 16u}) kinds.push_back({color, depth, interlaced});
    }
  }
  return kinds;
}

}  // namespace

// Pillow 12.3 gives the same result with convert("RGB") for 126 images of all kinds, with
// clip_grey set.
TEST_CASE("a PNG image of every kind becomes RGB, whole or in part", "[image]") {
  ps::png_decoder decoder;
  ps::sample_generator random{{.seed = 3}, 0};
  for (const test::png_kind& kind : all_png_kinds()) {
    for (const ps::image_size& size : {ps::image_size{33, 18}, {1, 1}, {5, 40}, {3, 2}}) {
      const auto image = test::some_png(size.width, size.height, kind, random());
      INFO("color " << kind.color << ", depth " << kind.depth << ", " << size.width);
      CHECK(decoder.info(image.bytes, "a") ==
            ps::image_info{size, kind.color == 3 ? 3 : kind.channels(), 1});
      CHECK((test::all_of(decoder, image.bytes) == image.rgb));
      for (int i = 0; i < 4; ++i) {
        const ps::image_size part{ps::uniform(random, std::size_t{1}, size.width),
                                  ps::uniform(random, std::size_t{1}, size.height)};
        const ps::image_box box{ps::uniform(random, std::size_t{0}, size.width - part.width),
                                ps::uniform(random, std::size_t{0}, size.height - part.height),
                                part};
        const auto values = test::part_of(decoder, image.bytes, box);
        bool same = true;
        for (std::size_t y = 0; y < part.height; ++y) {
          const auto* row = values.data() + y * part.width * 3;
          same = same && std::equal(row, row + part.width * 3,
                                    image.rgb.data() + ((box.top + y) * size.width + box.left) * 3);
        }
        CHECK(same);
      }
    }
  }
}

TEST_CASE("16-bit gray is truncated to its upper byte, or clipped if requested", "[image]") {
  for (const bool interlaced : {false, true}) {
    const auto image = test::some_png(300, 2, {0, 16, interlaced}, 8);
    ps::png_decoder clipping{{.clip_grey = true}};
    const auto clipped = test::all_of(clipping, image.bytes);
    std::size_t below = 0;
    for (std::size_t i = 0; i < clipped.size(); ++i) {
      if (image.rgb[i] != 0) CHECK(clipped[i] == 255);
      if (image.rgb[i] == 0 && clipped[i] < 255) ++below;
    }
    CHECK(below > 0);
    const auto color = test::some_png(9, 9, {2, 16, interlaced});
    CHECK((test::all_of(clipping, color.bytes) == color.rgb));
    const auto eight = test::some_png(9, 9, {0, 8, interlaced});
    CHECK((test::all_of(clipping, eight.bytes) == eight.rgb));
  }
}

TEST_CASE("a PNG image that ends early is truncated wherever it ends", "[image][fault:files-13]") {
  ps::png_decoder decoder;
  for (const bool interlaced : {false, true}) {
    const auto image = test::some_png(9, 7, {2, 8, interlaced});
    const encoded& bytes = image.bytes;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const encoded part = test::first_of(bytes, size);
      // The end chunk of twelve bytes is optional.
      if (size + 12 >= bytes.size()) {
        CHECK((test::all_of(decoder, part) == image.rgb));
      } else {
        const auto problem = png_error<ps::image_truncated>(part);
        if (size >= 8) CHECK(problem.offset() == size);
      }
    }
    CHECK((test::all_of(decoder, bytes) == image.rgb));
  }
}

TEST_CASE("a damaged PNG image is an error or an image, and leaves nothing behind",
          "[image][fault:files-13]") {
  ps::png_decoder decoder{{.max_pixels = 1 << 16}};
  for (const test::png_kind& kind : {test::png_kind{3, 4, false}, {6, 8, true}}) {
    const auto image = test::some_png(9, 7, kind);
    int rejected = 0;
    for (std::size_t at = 0; at < image.bytes.size() * 8; ++at) {
      encoded damaged = image.bytes;
      damaged[at / 8] ^= static_cast<std::byte>(1u << (at % 8));
      try {
        (void)test::all_of(decoder, damaged);
      } catch (const ps::file_error& problem) {
        ++rejected;
        CHECK(problem.offset() <= damaged.size());
      }
    }
    CHECK(rejected > 500);
    CHECK((test::all_of(decoder, image.bytes) == image.rgb));
  }
}

TEST_CASE("a flipped bit in a PNG image never changes the pixels of a part",
          "[image][fault:files-13]") {
  ps::png_decoder decoder{{.max_pixels = 1 << 16}};
  for (const bool interlaced : {false, true}) {
    const auto image = test::some_png(40, 60, {2, 8, interlaced});
    for (const ps::image_box& box : {ps::image_box{3, 10, {20, 20}}, ps::image_box{0, 59, {40, 1}},
                                     ps::image_box{0, 0, {40, 60}}}) {
      const auto right = test::part_of(decoder, image.bytes, box);
      int rejected = 0;
      for (std::size_t bit = 0; bit < image.bytes.size() * 8; bit += 31) {
        encoded damaged = image.bytes;
        damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
        try {
          const auto found = test::part_of(decoder, damaged, box);
          CHECK((found == right));
        } catch (const std::exception&) {  // the box may also exceed the changed size
          ++rejected;
        }
      }
      CHECK(rejected > 1500);
    }
    // To decode a region, the whole chunk that contains its last row must be present.
    const encoded part = test::first_of(image.bytes, image.bytes.size() - 20);
    CHECK_THROWS_AS(test::part_of(decoder, part, {3, 10, {20, 20}}), ps::image_truncated);
  }
}

TEST_CASE("the error for an invalid PNG image states the defect", "[image]") {
  const auto image = test::some_png(20, 10);
  const auto changed = [&](std::size_t at, unsigned value) {
    encoded bytes = image.bytes;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  CHECK(png_error<ps::image_truncated>({}).found() == "no bytes at all");
  CHECK(png_error<ps::image_unsupported>(changed(0, 0x88)).expected() == "a PNG image");
  CHECK(png_error<ps::image_corrupt>(changed(12, 'J')).offset() == 8);
  CHECK(png_error<ps::image_corrupt>(changed(19, 0)).found() == "0 x 10");
  CHECK(png_error<ps::image_corrupt>(changed(29, 77)).found().find("CRC error") !=
        std::string::npos);
  CHECK(png_error<ps::image_corrupt>(changed(60, 77)).expected() == "a valid PNG image");
}

TEST_CASE("a PNG image beyond a limit is rejected before it is decoded",
          "[image][fault:files-13]") {
  auto image = test::some_png(20, 10);
  const auto problem = png_error<ps::image_too_large>(image.bytes, {.max_pixels = 199});
  CHECK(problem.found() == "20 x 10");
  CHECK(problem.offset() == 16);
  ps::png_decoder enough{{.max_pixels = 200}};
  CHECK((test::all_of(enough, image.bytes) == image.rgb));
  image.bytes[17] = std::byte{0x0f};  // 983'060 columns
  CHECK_THROWS_AS(enough.info(image.bytes, "a"), ps::image_too_large);
  image.bytes.resize(30'000);  // the minimum file size for such a width
  ps::png_decoder wide;
  CHECK(wide.info(image.bytes, "a").size.width == 983'060);
  image.bytes[17] = std::byte{0x10};
  CHECK_THROWS_AS(wide.info(image.bytes, "a"), ps::image_too_large);
}

TEST_CASE("a PNG image of a few bytes that claims to be huge takes no memory", "[image]") {
  const bool interlaced = GENERATE(false, true);
  auto claims = test::some_png(1, 1, {2, 8, interlaced});
  std::vector<std::byte> sides;
  test::put_number(sides, 8192);
  std::copy(sides.begin(), sides.end(), claims.bytes.begin() + 16);
  std::copy(sides.begin(), sides.end(), claims.bytes.begin() + 20);
  REQUIRE(claims.bytes.size() < 80);
  // The checksum is valid, so only the length reveals the damage.
  std::vector<std::byte> header;
  test::put_chunk(header, "IHDR", {claims.bytes.begin() + 16, claims.bytes.begin() + 29});
  std::copy(header.begin(), header.end(), claims.bytes.begin() + 8);

  const test::blobs source{{claims.bytes}};
  const auto data = source | ps::decode_images<ps::png_decoder>(ps::whole{64});
  ps::loader loader{data, ps::sequential{}, {.batch_size = 1, .workers = 0}};
  const std::size_t before = test::live_bytes.load();
  test::peak_bytes = before;
  CHECK_THROWS_AS(
      [&] {
        for (auto& batch : loader.epoch(0)) CHECK(batch.size() == 0);
      }(),
      ps::image_truncated);
  CHECK(test::peak_bytes.load() - before < 65'536);
  ps::png_decoder decoder;
  CHECK_THROWS_AS(decoder.info(claims.bytes, "a.png"), ps::image_truncated);
}

TEST_CASE("a PNG image of one color is as small as deflate has it, and no damage",
          "[image][large]") {
  for (const unsigned depth : {1u, 8u}) {
    for (const bool interlaced : {false, true}) {
      CAPTURE(depth, interlaced);
      const auto image = test::some_png(3000, 2000, {0, depth, interlaced, true});
      REQUIRE(image.bytes.size() < 3000 * 2000 / (8 / depth) / 900);
      ps::png_decoder decoder;
      CHECK((test::all_of(decoder, image.bytes) == image.rgb));
    }
  }
}

TEST_CASE("chunks that the pixels do not need are skipped", "[image][fault:files-13]") {
  // Text and a color profile that decompress to four megabytes of zeros, and an unknown chunk.
  std::vector<std::byte> extra;
  std::vector<std::byte> text{std::byte{'a'}, std::byte{0}, std::byte{0}};
  const auto bomb = test::deflated(std::vector<std::byte>(std::size_t{1} << 22));
  text.insert(text.end(), bomb.begin(), bomb.end());
  test::put_chunk(extra, "zTXt", text);
  test::put_chunk(extra, "iCCP", text);
  test::put_chunk(extra, "gAMA", std::vector<std::byte>(4, std::byte{1}));
  test::put_chunk(extra, "abCd", text);
  const auto image = test::some_png(9, 9, {}, 1, extra);
  ps::png_decoder decoder;
  CHECK((test::all_of(decoder, image.bytes) == image.rgb));
}

TEST_CASE("a long text in a PNG image is not damage", "[image]") {
  // libpng 1.6.32 to 1.6.38 apply a memory limit to the size of every chunk.
  std::vector<std::byte> extra;
  test::put_chunk(extra, "tEXt", std::vector<std::byte>(65'537, std::byte{'a'}));
  const auto image = test::some_png(9, 9, {}, 1, extra);
  ps::png_decoder decoder;
  CHECK((test::all_of(decoder, image.bytes) == image.rgb));
}

TEST_CASE("an interlaced image needs memory only for the rows of the box", "[image]") {
  const auto image = test::some_png(400, 300, {6, 8, true});
  ps::png_decoder decoder;  // allocates memory whose end a sanitizer knows
  const auto row = test::part_of(decoder, image.bytes, {0, 7, {400, 1}});
  CHECK(std::equal(row.begin(), row.end(), image.rgb.begin() + 7 * 1200));
}

TEST_CASE("a box outside a PNG image is rejected", "[image]") {
  const auto image = test::some_png(20, 10);
  ps::png_decoder decoder;
  CHECK_THROWS_AS(test::part_of(decoder, image.bytes, {1, 0, {20, 10}}), std::invalid_argument);
  CHECK_THROWS_AS(test::part_of(decoder, image.bytes, {0, 0, {5, 0}}), std::invalid_argument);
}

TEST_CASE("a copy of a PNG decoder has its options", "[image]") {
  const ps::png_decoder decoder{{.clip_grey = true}};
  ps::png_decoder copy{decoder};
  CHECK(copy.options().clip_grey);
  copy = ps::png_decoder{};
  CHECK_FALSE(copy.options().clip_grey);
}
