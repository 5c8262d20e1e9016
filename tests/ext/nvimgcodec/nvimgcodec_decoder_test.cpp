// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/nvimgcodec/nvimgcodec_decoder.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>
#include <penstock_ext/image/png/png.hpp>

#include "ext/image/blobs.hpp"
#include "ext/image/decoded.hpp"
#include "ext/image/jpeg_images.hpp"
#include "ext/image/png_images.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;

namespace {

using namespace std::string_view_literals;

// Compares the whole image and random regions of it with the whole image as another decoder
// decodes it.
template <class Other>
void check_parts(ps::nvimgcodec_decoder& decoder, Other& other, const test::encoded& bytes,
                 int tolerance) {
  const ps::image_size size = other.info(bytes, "an image").size;
  CHECK(decoder.info(bytes, "an image") == other.info(bytes, "an image"));
  CHECK(test::apart(test::all_of(decoder, bytes), test::all_of(other, bytes)) <= tolerance);
  ps::sample_generator random{{.seed = bytes.size()}, 7};
  const auto draw = [&random](std::size_t low, std::size_t high) {
    return ps::uniform(random, low, high);
  };
  for (int i = 0; i < 20; ++i) {
    ps::image_box box{0, 0, {draw(1, size.width), draw(1, size.height)}};
    box.left = draw(0, size.width - box.size.width);
    box.top = draw(0, size.height - box.size.height);
    const auto part = test::part_of(decoder, bytes, box, draw(0, 9));
    CHECK(test::apart(part, test::part_of(other, bytes, box)) <= tolerance);
  }
}

// Hand-written images of 2 x 2 pixels.
test::encoded tiny_ppm() { return test::bytes_of("P6\n2 2\n255\nabcdefghijkl"sv); }
test::encoded tiny_bmp() {
  return test::bytes_of(
      "BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\2\0\0\0\2\0\0\0\1\0\x18\0"
      "\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
      "ihglkj\0\0cbafed\0\0"sv);
}

}  // namespace

TEST_CASE("nvImageCodec's JPEG pixels are libjpeg's, all of an image or a part",
          "[nvimgcodec][promise:exact-17]") {
  ps::nvimgcodec_decoder decoder;
  ps::jpeg_decoder jpeg;
  const std::array<test::jpeg_kind, 7> kinds{{{},
                                              {.across = 1, .down = 1},
                                              {.down = 1},
                                              {.across = 1},
                                              {.across = 1, .down = 1, .components = 1},
                                              {.progressive = true},
                                              {.restart = 1}}};
  for (const test::jpeg_kind& kind : kinds) {
    CAPTURE(kind.across, kind.down, kind.components, kind.progressive);
    check_parts(decoder, jpeg, test::some_jpeg(67, 45, kind), 0);
  }
  // nvImageCodec converts CMYK to RGB in floats, and penstock's decoder in integers.
  check_parts(decoder, jpeg, test::some_jpeg(34, 21, {.across = 1, .down = 1, .components = 4}), 1);
}

TEST_CASE("nvImageCodec ignores the orientation and keeps pixels as stored",
          "[nvimgcodec][promise:exact-17]") {
  ps::nvimgcodec_decoder decoder;
  ps::jpeg_decoder turning{{.orientation = true}};
  const test::encoded bytes = test::some_jpeg(67, 45);
  const auto stored = test::all_of(decoder, bytes);
  for (const unsigned number : {3u, 6u, 8u}) {
    const test::encoded image = test::turned(bytes, number, false);
    // If the pixels were equal, the test could not detect a rotation.
    CHECK((test::all_of(turning, image) != stored));
    CHECK(decoder.info(image, "an image").size == ps::image_size{67, 45});
    CHECK((test::all_of(decoder, image) == stored));
  }
}

TEST_CASE("nvImageCodec's PNG pixels are libpng's", "[nvimgcodec][promise:exact-17]") {
  ps::nvimgcodec_decoder decoder;
  ps::png_decoder png;
  for (const test::png_kind& kind :
       {test::png_kind{}, {.color = 0}, {.depth = 16}, {.interlaced = true}, {.color = 3}}) {
    const test::encoded bytes = test::some_png(37, 23, kind).bytes;
    CHECK(test::apart(test::all_of(decoder, bytes), test::all_of(png, bytes)) == 0);
  }
  check_parts(decoder, png, test::some_png(37, 23, {.color = 6}).bytes, 0);
}

TEST_CASE("other formats are detected by content and decoded", "[nvimgcodec]") {
  ps::nvimgcodec_decoder decoder;
  const std::vector<std::uint8_t> right{'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l'};
  for (const test::encoded& bytes : {tiny_ppm(), tiny_bmp()}) {
    CHECK(decoder.matches(bytes));
    CHECK(decoder.info(bytes, "tiny") == ps::image_info{{2, 2}, 3, 1});
    CHECK((test::all_of(decoder, bytes) == right));
    CHECK((test::part_of(decoder, bytes, {1, 1, {1, 1}}) ==
           std::vector<std::uint8_t>{'j', 'k', 'l'}));
  }
  for (const auto text : {"GIF89a image"sv, "nothing"sv, ""sv, "\xff\xd8"sv}) {
    CHECK_FALSE(decoder.matches(test::bytes_of(text)));
  }
}

TEST_CASE("an image for nvImageCodec that ends early is truncated wherever it ends",
          "[nvimgcodec][fault:files-14]") {
  ps::nvimgcodec_decoder decoder;
  const std::array<test::encoded, 4> images{test::some_jpeg(33, 18),
                                            test::some_jpeg(33, 18, {.progressive = true}),
                                            test::some_png(9, 7).bytes, tiny_bmp()};
  for (const test::encoded& bytes : images) {
    const auto right = test::all_of(decoder, bytes);
    for (std::size_t size = 10; size + 2 < bytes.size(); size += 1 + bytes.size() / 60) {
      const auto problem = test::error_of<ps::image_truncated>(
          [&] { test::all_of(decoder, test::first_of(bytes, size)); });
      CHECK(problem.path() == "an image");
      CHECK(problem.offset() == size);
    }
    if (&bytes == &images.back()) continue;  // the last bytes of a BMP file are only padding
    const auto problem = test::error_of<ps::image_truncated>(
        [&] { test::all_of(decoder, test::first_of(bytes, bytes.size() - 1)); });
    CHECK(problem.found() == "the end of its bytes");
    CHECK((test::all_of(decoder, bytes) == right));  // decodes like the first image
  }
  const auto nothing =
      test::error_of<ps::image_truncated>([&] { static_cast<void>(decoder.info({}, "none")); });
  CHECK(nothing.path() == "none");
  CHECK(nothing.found() == "no bytes at all");
}

TEST_CASE("an image that nvImageCodec cannot decode is corrupt, unsupported or too large",
          "[nvimgcodec][fault:files-14]") {
  ps::nvimgcodec_decoder decoder{{.max_pixels = 1000}};
  const test::encoded bytes = test::some_jpeg(24, 17);
  const auto right = test::all_of(decoder, bytes);

  test::encoded damaged = bytes;
  for (std::size_t at = 0; at + 24 < damaged.size(); ++at) {
    if (damaged[at] != std::byte{0xff} || damaged[at + 1] != std::byte{0xc4}) continue;
    // Number of codes per length.
    for (std::size_t i = 5; i < 21; ++i) damaged[at + i] = std::byte{0xff};
    break;
  }
  const auto corrupt = test::error_of<ps::image_corrupt>([&] { test::all_of(decoder, damaged); });
  CHECK(corrupt.path() == "an image");
  CHECK(corrupt.expected() == "a valid JPEG image");

  const auto unknown = test::error_of<ps::image_unsupported>(
      [&] { test::all_of(decoder, test::bytes_of("GIF89a image"sv)); });
  CHECK(unknown.found() == "a GIF image");
  const auto text = test::error_of<ps::image_unsupported>(
      [&] { test::all_of(decoder, test::bytes_of("a text"sv)); });
  CHECK(test::has(text.found(), "bytes of an unknown format: 61 20"));

  const auto huge =
      test::error_of<ps::image_too_large>([&] { test::all_of(decoder, test::some_jpeg(40, 26)); });
  CHECK(huge.found() == "40 x 26");
  CHECK(test::has(huge.expected(), "nvimgcodec_options::max_pixels"));

  std::vector<std::uint8_t> room(24 * 17 * 3);
  const ps::pixels out{room.data(), {24, 17}, 3, 24 * 3};
  CHECK_THROWS_AS(decoder.decode(bytes, "a", {1, 0, {24, 17}}, out), std::invalid_argument);
  CHECK_THROWS_AS(decoder.decode(bytes, "a", {0, 0, {23, 17}}, out), std::invalid_argument);
  CHECK((test::all_of(decoder, bytes) == right));
}

TEST_CASE("a damaged image for nvImageCodec is an error or an image",
          "[nvimgcodec][fault:files-14]") {
  ps::nvimgcodec_decoder decoder{{.max_pixels = 1 << 16}};
  const std::array<test::encoded, 3> images{test::some_jpeg(24, 17, {.quality = 40}),
                                            test::some_png(8, 8).bytes, tiny_bmp()};
  for (const test::encoded& bytes : images) {
    const auto right = test::all_of(decoder, bytes);
    int rejected = 0;
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
      test::encoded damaged = bytes;
      damaged[at] ^= static_cast<std::byte>(1u << (at % 8));
      try {
        static_cast<void>(test::all_of(decoder, damaged));
      } catch (const ps::file_error& problem) {
        ++rejected;
        CHECK(problem.path() == "an image");
      }
    }
    CHECK(rejected > 5);
    CHECK((test::all_of(decoder, bytes) == right));
  }
}

TEST_CASE("copies of an nvImageCodec decoder work concurrently on their own threads",
          "[nvimgcodec]") {
  const ps::nvimgcodec_decoder first;
  std::vector<test::encoded> images;
  std::vector<std::vector<std::uint8_t>> right;
  ps::jpeg_decoder jpeg;
  for (std::size_t i = 0; i < 8; ++i) {
    images.push_back(test::some_jpeg(30 + i, 20 + i, {.progressive = i % 2 == 1}, i));
    right.push_back(test::all_of(jpeg, images.back()));
  }
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (std::size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      ps::nvimgcodec_decoder decoder{first};
      for (std::size_t i = 0; i < 40; ++i) {
        const std::size_t which = (i + thread) % images.size();
        if (i % 10 == 9) {  // a failure on one thread must not affect other threads
          try {
            static_cast<void>(test::all_of(decoder, test::first_of(images[which], 200)));
            ++wrong;
          } catch (const ps::image_truncated&) {
            continue;
          }
        }
        if (test::all_of(decoder, images[which]) != right[which]) ++wrong;
      }
    });
  }
  threads.clear();
  CHECK(wrong == 0);
}

TEST_CASE("a copy of an nvImageCodec decoder keeps the options and outlives the original",
          "[nvimgcodec]") {
  const test::encoded bytes = test::some_jpeg(20, 20);
  ps::nvimgcodec_decoder decoder;
  const auto right = test::all_of(decoder, bytes);
  {
    ps::nvimgcodec_decoder other{{.max_pixels = 400}};
    decoder = other;
    const auto& same = decoder;
    decoder = same;
  }
  CHECK(decoder.options().max_pixels == 400);
  CHECK((test::all_of(decoder, bytes) == right));
  CHECK_THROWS_AS(test::all_of(decoder, test::some_jpeg(21, 20)), ps::image_too_large);
}

TEST_CASE("a loader has the same batches by nvImageCodec as by libjpeg", "[nvimgcodec]") {
  test::blobs photos;
  for (std::size_t i = 0; i < 12; ++i) photos.all.push_back(test::some_jpeg(40 + i, 50, {}, i));
  const auto sums = [&photos](auto decoded) {
    ps::loader loader{decoded, ps::shuffled{.seed = 1}, {.batch_size = 4, .workers = 2}};
    std::vector<std::uint8_t> values;
    for (auto& batch : loader.epoch(0)) {
      const auto image = batch.template get<"image">();
      values.insert(values.end(), image.data(), image.data() + image.size());
    }
    return values;
  };
  const auto ours = sums(photos | ps::decode_images<ps::jpeg_decoder>(test::some_crop{}));
  const auto theirs = sums(photos | ps::decode_images<ps::nvimgcodec_decoder>(test::some_crop{}));
  CHECK(ours.size() == 12 * 12 * 10 * 3);
  CHECK((theirs == ours));
}
