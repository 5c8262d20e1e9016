// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/webp/webp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <webp/encode.h>

#include <penstock/load/loader.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>

#include "ext/image/blobs.hpp"
#include "ext/image/decoded.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;
using test::encoded;

namespace {

using namespace std::string_view_literals;
using webp_values = std::vector<std::uint8_t>;

// The encoding parameters of a WebP image.
struct webp_kind {
  bool lossless = true;
  bool alpha = false;
  float quality = 70;
  int filter_type = 1;  // 0 simple, 1 strong
  int filter_strength = 60;
  int partitions = 0;
  int method = 1;  // 0 fast to 6 small
  int alpha_quality = 100;
  int near_lossless = 100;
};

struct webp_image {
  encoded bytes;
  webp_values rgb;
};

// Returns an image that libwebp has written, of gradients with some noise.
webp_image written_webp(const ps::image_size& size, const webp_kind& kind = {},
                        std::uint64_t seed = 1) {
  webp_image image;
  webp_values values;
  ps::sample_generator random{{.seed = seed}, 0};
  for (std::size_t y = 0; y < size.height; ++y) {
    for (std::size_t x = 0; x < size.width; ++x) {
      const std::uint64_t noise = random();
      for (const std::uint64_t value :
           {9 * x + (noise & 63), 7 * y + (noise >> 8 & 31), x * y / 2 + (noise >> 16 & 127)}) {
        image.rgb.push_back(static_cast<std::uint8_t>(value));
        values.push_back(static_cast<std::uint8_t>(value));
      }
      if (kind.alpha) values.push_back(static_cast<std::uint8_t>((noise >> 24 & 3) * 85));
    }
  }
  ::WebPConfig config;
  ::WebPPicture picture;
  ::WebPMemoryWriter writer;
  REQUIRE(::WebPConfigInit(&config) != 0);
  REQUIRE(::WebPPictureInit(&picture) != 0);
  ::WebPMemoryWriterInit(&writer);
  config.lossless = kind.lossless ? 1 : 0;
  config.exact = 1;
  config.method = kind.method;
  config.alpha_quality = kind.alpha_quality;
  config.near_lossless = kind.near_lossless;
  config.quality = kind.quality;
  config.filter_type = kind.filter_type;
  config.filter_strength = kind.filter_strength;
  config.partitions = kind.partitions;
  picture.use_argb = kind.lossless ? 1 : 0;
  picture.width = static_cast<int>(size.width);
  picture.height = static_cast<int>(size.height);
  picture.writer = ::WebPMemoryWrite;
  picture.custom_ptr = &writer;
  if (kind.alpha) {
    REQUIRE(::WebPPictureImportRGBA(&picture, values.data(), 4 * picture.width) != 0);
  } else {
    REQUIRE(::WebPPictureImportRGB(&picture, values.data(), 3 * picture.width) != 0);
  }
  REQUIRE(::WebPEncode(&config, &picture) != 0);
  const auto* begin = reinterpret_cast<const std::byte*>(writer.mem);
  image.bytes.assign(begin, begin + writer.size);
  ::WebPPictureFree(&picture);
  ::WebPMemoryWriterClear(&writer);
  return image;
}

// Returns the pixels that libwebp itself decodes, or nothing if it fails.
webp_values decoded_by_libwebp(const encoded& bytes) {
  int width = 0;
  int height = 0;
  std::uint8_t* rgb = ::WebPDecodeRGB(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                      bytes.size(), &width, &height);
  if (rgb == nullptr) return {};
  const webp_values values(rgb, rgb + static_cast<std::size_t>(width * height * 3));
  ::WebPFree(rgb);
  return values;
}

webp_values cut_out(const webp_values& rgb, std::size_t width, const ps::image_box& box) {
  webp_values part;
  for (std::size_t y = box.top; y < box.top + box.size.height; ++y) {
    const auto row = rgb.begin() + static_cast<std::ptrdiff_t>((y * width + box.left) * 3);
    part.insert(part.end(), row, row + static_cast<std::ptrdiff_t>(box.size.width * 3));
  }
  return part;
}

ps::image_box box_inside(ps::sample_generator& random, const ps::image_size& size) {
  const std::size_t width = ps::uniform(random, std::size_t{1}, size.width);
  const std::size_t height = ps::uniform(random, std::size_t{1}, size.height);
  return {ps::uniform(random, std::size_t{0}, size.width - width),
          ps::uniform(random, std::size_t{0}, size.height - height),
          {width, height}};
}

template <class E>
E webp_error(const encoded& bytes, const ps::webp_options& options = {}) {
  return test::decode_error<E>(ps::webp_decoder{options}, bytes);
}

webp_kind kind_by(ps::sample_generator& random) {
  const auto draw = [&](int low, int high) { return ps::uniform(random, low, high); };
  webp_kind kind;
  kind.lossless = draw(0, 1) == 0;
  kind.alpha = draw(0, 1) == 0;
  kind.quality = static_cast<float>(draw(0, 100));
  kind.filter_type = draw(0, 1);
  kind.filter_strength = draw(0, 100);
  kind.partitions = draw(0, 3);
  kind.method = draw(0, 3);
  if (draw(0, 1) == 0) kind.alpha_quality = draw(0, 100);
  if (draw(0, 3) == 0) kind.near_lossless = draw(0, 99);
  return kind;
}

// Checks that a damaged image has the pixels of libwebp, whole and in part, or is an error. Returns
// true if it is an error.
bool is_rejected(ps::webp_decoder& decoder, const encoded& damaged, ps::sample_generator& random) {
  try {
    const webp_values whole = test::all_of(decoder, damaged);
    CHECK((whole == decoded_by_libwebp(damaged)));
    const ps::image_size size = decoder.info(damaged, "a").size;
    const ps::image_box box = box_inside(random, size);
    CHECK((test::part_of(decoder, damaged, box) == cut_out(whole, size.width, box)));
    return false;
  } catch (const ps::image_corrupt& problem) {
    CHECK(problem.offset() <= damaged.size());
    CHECK(decoded_by_libwebp(damaged).empty());
  } catch (const ps::file_error& problem) {
    CHECK(problem.offset() <= damaged.size());
  }
  return true;
}

// Replaces the length in the RIFF header, so that only the compressed data end early.
encoded with_length(encoded bytes) {
  for (std::size_t i = 0; i < 4; ++i) {
    bytes[4 + i] = static_cast<std::byte>((bytes.size() - 8) >> (8 * i));
  }
  return bytes;
}

}  // namespace

TEST_CASE(
    "a lossless WebP image has its own pixels, a lossy one those of libwebp, whole or in part",
    "[webp]") {
  ps::webp_decoder decoder;
  ps::sample_generator random{{.seed = 5}, 0};
  for (const webp_kind& kind :
       {webp_kind{}, webp_kind{.alpha = true}, webp_kind{.lossless = false},
        webp_kind{.lossless = false, .alpha = true, .filter_type = 0},
        webp_kind{.lossless = false, .quality = 5, .filter_type = 0, .partitions = 2},
        webp_kind{.lossless = false, .quality = 95, .filter_strength = 0}}) {
    for (const ps::image_size& size :
         {ps::image_size{1, 1}, {2, 3}, {17, 16}, {70, 45}, {33, 130}}) {
      CAPTURE(kind.lossless, kind.alpha, kind.quality, size.width, size.height);
      const webp_image image = written_webp(size, kind, random());
      const webp_values whole = decoded_by_libwebp(image.bytes);
      REQUIRE(whole.size() == size.width * size.height * 3);
      if (kind.lossless) CHECK((whole == image.rgb));
      CHECK(decoder.info(image.bytes, "a") ==
            ps::image_info{size, kind.alpha ? std::size_t{4} : std::size_t{3}, 1});
      CHECK((test::all_of(decoder, image.bytes) == whole));
      CHECK((test::part_of(decoder, image.bytes, {0, 0, size}, 5) == whole));
      for (int i = 0; i < 12; ++i) {
        const ps::image_box box = box_inside(random, size);
        CAPTURE(box.left, box.top, box.size.width, box.size.height);
        CHECK((test::part_of(decoder, image.bytes, box, 3) == cut_out(whole, size.width, box)));
      }
    }
  }
}

TEST_CASE("a WebP image that ends early is truncated wherever it ends", "[webp][fault:files-13]") {
  ps::webp_decoder decoder;
  for (const bool lossless : {false, true}) {
    const webp_image image = written_webp({40, 33}, {.lossless = lossless});
    const webp_values whole = decoded_by_libwebp(image.bytes);
    std::size_t rejected = 0;
    for (std::size_t size = 0; size < image.bytes.size(); ++size) {
      const encoded part = test::first_of(image.bytes, size);
      const auto problem = webp_error<ps::image_truncated>(part);
      if (size >= 12) CHECK(problem.offset() == size);
      if (size < 12) continue;
      // Other bytes than the header's length reveal the end to libwebp.
      const encoded shorter = with_length(part);
      try {
        const webp_values found = test::all_of(decoder, shorter);
        CHECK((found == decoded_by_libwebp(shorter)));
      } catch (const ps::file_error&) {
        ++rejected;
      }
    }
    CHECK(rejected > image.bytes.size() - 20);
    CHECK((test::all_of(decoder, image.bytes) == whole));
  }
}

TEST_CASE("a damaged WebP image is an error, or the image that libwebp decodes",
          "[webp][fault:files-13]") {
  ps::webp_decoder decoder{{.max_pixels = 1 << 16}};
  ps::sample_generator random{{.seed = 7}, 0};
  for (const webp_kind& kind :
       {webp_kind{}, webp_kind{.lossless = false}, webp_kind{.lossless = false, .alpha = true}}) {
    const webp_image image = written_webp({11, 9}, kind);
    const webp_values whole = decoded_by_libwebp(image.bytes);
    std::size_t rejected = 0;
    for (std::size_t bit = 0; bit < image.bytes.size() * 8; ++bit) {
      encoded damaged = image.bytes;
      damaged[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      if (is_rejected(decoder, damaged, random)) ++rejected;
    }
    CHECK(rejected > 100);
    CHECK((test::all_of(decoder, image.bytes) == whole));
  }
}

TEST_CASE("thousands of WebP images have the pixels of libwebp, whole, in part and damaged",
          "[webp][large][fault:files-13]") {
  ps::webp_decoder decoder{{.max_pixels = 1 << 16}};
  std::size_t rejected = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    ps::sample_generator random{{.seed = seed}, 0};
    const auto below = [&](std::size_t end) {
      return ps::uniform(random, std::size_t{0}, end - 1);
    };
    const ps::image_size size{1 + below(40), 1 + below(30)};
    const webp_kind kind = kind_by(random);
    const webp_image image = written_webp(size, kind, seed);
    const webp_values whole = decoded_by_libwebp(image.bytes);
    REQUIRE(whole.size() == size.width * size.height * 3);
    if (kind.lossless && kind.near_lossless == 100) CHECK((whole == image.rgb));
    CHECK((test::all_of(decoder, image.bytes) == whole));
    const ps::image_box box = box_inside(random, size);
    CHECK((test::part_of(decoder, image.bytes, box, below(4)) == cut_out(whole, size.width, box)));
    for (int i = 0; i < 2; ++i) {
      encoded damaged = image.bytes;
      for (std::size_t flips = 1 + below(3); flips != 0; --flips) {
        damaged[below(damaged.size())] ^= static_cast<std::byte>(1U << below(8));
      }
      if (is_rejected(decoder, damaged, random)) ++rejected;
    }
    const encoded part = test::first_of(image.bytes, below(image.bytes.size()));
    static_cast<void>(webp_error<ps::image_truncated>(part));
    if (part.size() >= 12) is_rejected(decoder, with_length(part), random);
  }
  CHECK(rejected > 300);
}

TEST_CASE("the error for an invalid WebP image states the defect", "[webp]") {
  const webp_image image = written_webp({20, 10}, {.lossless = false});
  const auto changed = [&](std::size_t at, unsigned value) {
    encoded bytes = image.bytes;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  CHECK(webp_error<ps::image_truncated>({}).found() == "no bytes at all");
  CHECK(
      webp_error<ps::image_unsupported>(test::bytes_of("\x89PNG\r\n\x1a\n\0\0\0\0\0"sv)).found() ==
      "a PNG image");
  CHECK(webp_error<ps::image_corrupt>(changed(23, 0)).expected() == "a valid WebP image");
  CHECK(webp_error<ps::image_unsupported>(
            test::bytes_of("RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\2\0\0\0\7\0\0\7\0\0"sv))
            .found() == "an animation");
  const auto large = webp_error<ps::image_too_large>(image.bytes, {.max_pixels = 199});
  CHECK(large.found() == "20 x 10");
  CHECK(ps::webp_decoder{{.max_pixels = 199}}.options().max_pixels == 199);
  ps::webp_decoder enough{{.max_pixels = 200}};
  CHECK(test::all_of(enough, image.bytes).size() == 600);
  CHECK_THROWS_AS(test::part_of(enough, image.bytes, {1, 0, {20, 10}}), std::invalid_argument);
}

TEST_CASE("decode_images reads WebP images into batches, with and without workers", "[webp]") {
  test::blobs source;
  webp_values expected;
  for (std::size_t i = 0; i < 6; ++i) {
    const ps::image_size size{41 + 2 * i, 30};
    source.all.push_back(written_webp(size, {.lossless = i % 2 == 0}, i).bytes);
    const ps::image_box middle{(size.width - 17) / 2, 9, {17, 12}};
    const webp_values part = cut_out(decoded_by_libwebp(source.all.back()), size.width, middle);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  const ps::center_crop geometry{ps::image_size{.width = 17, .height = 12}};
  const auto data = source | ps::decode_images<ps::webp_decoder>(geometry);
  for (const std::uint32_t workers : {0u, 2u}) {
    ps::loader loader{data, ps::sequential{}, {.batch_size = 3, .workers = workers}};
    webp_values values;
    for (auto& batch : loader.epoch(0)) {
      const auto image = ps::get<"image">(batch);
      values.insert(values.end(), image.data(), image.data() + image.size());
    }
    CHECK((values == expected));
  }
}
