// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ext/image/decoded.hpp"
#include "ext/image/jpeg_images.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::encoded;

namespace {

// Returns the exception of exactly type E that decoding `bytes` throws.
template <class E>
E jpeg_error(const encoded& bytes, const ps::jpeg_options& options = {}) {
  return test::decode_error<E>(ps::jpeg_decoder{options}, bytes);
}

// Returns the position of the `nth` marker of a kind.
std::size_t marker(const encoded& bytes, unsigned kind, int nth = 0) {
  for (std::size_t at = 0; at + 1 < bytes.size(); ++at) {
    if (bytes[at] == std::byte{0xff} && bytes[at + 1] == static_cast<std::byte>(kind) &&
        nth-- == 0) {
      return at;
    }
  }
  FAIL("no such marker");
  return 0;
}

encoded bytes_of_text(std::string_view letters) {
  encoded bytes = test::bytes_of(letters);
  bytes.resize(bytes.size() + 32);
  return bytes;
}

}  // namespace

TEST_CASE("a JPEG header specifies size and channels", "[image]") {
  ps::jpeg_decoder decoder;
  CHECK(decoder.info(test::some_jpeg(31, 7), "a") == ps::image_info{{31, 7}, 3, 1});
  CHECK(decoder.info(test::some_jpeg(1, 9, {.components = 1}), "a").channels == 1);
  CHECK(decoder.info(test::some_jpeg(1, 9, {.across = 1, .components = 4}), "a").channels == 4);
  CHECK(decoder.matches(test::some_jpeg(1, 1)));
  CHECK_FALSE(decoder.matches(bytes_of_text("RIFF")));
  CHECK_FALSE(decoder.matches({}));
}

TEST_CASE("gray is converted to three equal channels", "[image]") {
  ps::jpeg_decoder decoder;
  const auto values = test::all_of(decoder, test::some_jpeg(20, 9, {.components = 1}));
  for (std::size_t i = 0; i < values.size(); i += 3) {
    CHECK((values[i] == values[i + 1] && values[i] == values[i + 2]));
  }
  CHECK(std::adjacent_find(values.begin(), values.end(), std::not_equal_to{}) != values.end());
}

// Pillow 12.3 gives the same result for these images with convert("RGB").
TEST_CASE("CMYK and YCCK become RGB with inverted ink", "[image]") {
  for (const bool ycck : {false, true}) {
    const auto bytes = test::some_jpeg(
        37, 21, {.across = 2, .down = 2, .components = 4, .adobe_ycck = ycck, .quality = 60});
    const auto cmyk = test::decode_plainly(bytes);
    ps::jpeg_decoder decoder;
    const auto rgb = test::part_of(decoder, bytes, {3, 5, {34, 16}});
    bool same = true;
    for (std::size_t y = 0; y < 16; ++y) {
      for (std::size_t x = 0; x < 34; ++x) {
        const std::uint8_t* ink = cmyk.data() + ((y + 5) * 37 + x + 3) * 4;
        for (std::size_t channel = 0; channel < 3; ++channel) {
          // Computes (1 - ink) * light, rounded to the nearest multiple of 1 / 255.
          const int absorbed = (2 * (255 - ink[channel]) * ink[3] + 255) / 510;
          same = same && rgb[(y * 34 + x) * 3 + channel] == ink[3] - absorbed;
        }
      }
    }
    CHECK(same);
  }
}

TEST_CASE("a JPEG image that ends early is truncated wherever it ends", "[image][fault:files-13]") {
  ps::jpeg_decoder decoder;
  for (const bool progressive : {false, true}) {
    const encoded bytes = test::some_jpeg(33, 18, {.progressive = progressive});
    const auto right = test::all_of(decoder, bytes);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const encoded part = test::first_of(bytes, size);
      // The end marker of a single scan is not required if all rows are present.
      if (!progressive && size + 2 >= bytes.size()) {
        CHECK((test::all_of(decoder, part) == right));
        continue;
      }
      for (const bool strict : {true, false}) {
        const auto problem = jpeg_error<ps::image_truncated>(part, {.strict = strict});
        if (size >= 3) CHECK(problem.offset() == size);
      }
    }
    CHECK((test::all_of(decoder, bytes) == right));
  }
  CHECK(jpeg_error<ps::image_truncated>({}).found() == "no bytes at all");
  // An arithmetic decoder silently invents missing data.
  for (const int restart : {0, 1}) {
    const encoded bytes = test::some_jpeg(33, 38, {.arithmetic = true, .restart = restart});
    for (std::size_t size = 3; size < bytes.size(); ++size) {
      CHECK(jpeg_error<ps::image_truncated>(test::first_of(bytes, size)).offset() == size);
      (void)jpeg_error<ps::image_truncated>(test::first_of(bytes, size), {.strict = false});
    }
  }
}

TEST_CASE("a damaged JPEG image is an error or an image, and leaves nothing behind",
          "[image][fault:files-13]") {
  for (const bool progressive : {false, true}) {
    const encoded bytes = test::some_jpeg(24, 17, {.progressive = progressive, .quality = 40});
    ps::jpeg_decoder decoder{{.max_pixels = 1 << 16}};
    ps::jpeg_decoder lenient{{.strict = false, .max_pixels = 1 << 16}};
    const auto right = test::all_of(decoder, bytes);
    int rejected = 0;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      encoded damaged = bytes;
      damaged[at] ^= static_cast<std::byte>(1u << (at % 8));
      for (ps::jpeg_decoder* one : {&decoder, &lenient}) {
        try {
          (void)test::all_of(*one, damaged);
        } catch (const ps::file_error& problem) {
          rejected += one == &decoder ? 1 : 0;
          CHECK(problem.offset() <= bytes.size());
        }
      }
      if (at % 8 == 0) CHECK((test::all_of(decoder, bytes) == right));
    }
    CHECK(rejected > 100);
    CHECK((test::all_of(decoder, bytes) == right));
  }
}

// docs/images.md states that JPEG files have no checksum and that `verified_blobs` adds one.
TEST_CASE("most flipped bits in the data of a JPEG image give other pixels and no error",
          "[image][fault:files-13]") {
  const encoded bytes = test::some_jpeg(96, 96);
  ps::jpeg_decoder decoder;
  const auto right = test::all_of(decoder, bytes);
  const std::size_t data = marker(bytes, 0xda) + 16;
  std::size_t others = 0;
  for (std::size_t at = data; at < bytes.size() - 2; ++at) {
    encoded damaged = bytes;
    damaged[at] ^= std::byte{4};
    try {
      if (test::all_of(decoder, damaged) != right) ++others;
    } catch (const ps::file_error&) {
    }
  }
  CHECK(others > (bytes.size() - data) / 2);
}

TEST_CASE("damaged pixels are an error unless damage is allowed", "[image][fault:files-13]") {
  const encoded bytes = test::some_jpeg(64, 64);
  encoded damaged = bytes;
  const std::size_t middle = bytes.size() * 3 / 4;
  damaged[middle] = std::byte{0xff};
  damaged[middle + 1] = std::byte{0xd9};
  const auto problem = jpeg_error<ps::image_corrupt>(damaged);
  CHECK(problem.expected() == "a valid JPEG image");
  CHECK(problem.found() == "Corrupt JPEG data: premature end of data segment");
  CHECK(problem.offset() > marker(bytes, 0xda));
  ps::jpeg_decoder lenient{{.strict = false}};
  CHECK((test::all_of(lenient, damaged) == test::decode_plainly(damaged)));
  // Damage after the last row of the box is not read.
  ps::jpeg_decoder strict;
  const ps::image_box top{0, 0, {64, 16}};
  CHECK((test::part_of(strict, damaged, top) == test::part_of(strict, bytes, top)));
}

TEST_CASE("extra bytes before a restart marker count as damage", "[image]") {
  const encoded bytes = test::some_jpeg(64, 64, {.restart = 1});
  const encoded damaged =
      test::with_bytes(bytes, marker(bytes, 0xd1), {0x12, 0x34, 0x56, 0x12, 0x34, 0x56});
  const auto problem = jpeg_error<ps::image_corrupt>(damaged);
  CHECK(problem.found().find("extraneous bytes before marker 0xd1") != std::string::npos);
  ps::jpeg_decoder lenient{{.strict = false}};
  CHECK((test::all_of(lenient, damaged) == test::decode_plainly(damaged)));
  const encoded one = test::some_jpeg(64, 64);  // bytes before the end marker are harmless
  ps::jpeg_decoder decoder;
  CHECK((test::all_of(decoder, test::with_bytes(one, one.size() - 2, {0x12, 0x34})) ==
         test::all_of(decoder, one)));
}

TEST_CASE("bytes that libjpeg skips between markers are harmless", "[image]") {
  ps::jpeg_decoder decoder;
  const encoded bytes = test::some_jpeg(20, 20);
  const auto right = test::all_of(decoder, bytes);
  CHECK(test::all_of(decoder, test::with_bytes(bytes, bytes.size() - 2, {0x12, 0x34, 0x56})) ==
        right);
  CHECK(test::all_of(decoder, test::with_bytes(bytes, marker(bytes, 0xda), {0x12, 0x34})) == right);
  CHECK(test::all_of(decoder, test::with_bytes(bytes, bytes.size(), {1, 2, 3})) == right);
  const encoded progressive = test::some_jpeg(20, 20, {.progressive = true});
  CHECK(test::all_of(decoder,
                     test::with_bytes(progressive, marker(progressive, 0xda, 1), {0x12, 0x34})) ==
        test::all_of(decoder, progressive));
}

TEST_CASE("images of other formats are rejected by name", "[image][fault:files-13]") {
  using namespace std::string_view_literals;
  const auto name = [](std::string_view start) {
    return jpeg_error<ps::image_unsupported>(bytes_of_text(start)).found();
  };
  CHECK(name("RIFF\x10\0\0\0WEBPVP8 "sv) == "a WebP image");
  CHECK(name("\x89PNG\r\n\x1a\n"sv) == "a PNG image");
  CHECK(name("GIF89a"sv) == "a GIF image");
  CHECK(name("BM\x40\0\0\0\0\0\0\0"sv) == "a BMP image");
  CHECK(name("II*\0"sv) == "a TIFF image");
  CHECK(name("MM\0*"sv) == "a TIFF image");
  CHECK(name("\0\0\0\x20"
             "ftypheic"sv) == "a HEIC image");
  CHECK(name("\0\0\0\x20"
             "ftypavif"sv) == "a AVIF image");
  CHECK(name("\0\0\0\x0cjP  \r\n\x87\n"sv) == "a JPEG 2000 image");
  CHECK(name("\xff\x0a"sv) == "a JPEG XL image");
  CHECK(name("P6\n4 4\n255\n"sv) == "a PPM image");
  CHECK(name("BMW and other letters"sv) == "bytes of an unknown format: 42 4d 57 20 61 6e 64 20");
}

TEST_CASE("kinds of JPEG that libjpeg can't decode to 8 bits are unsupported", "[image]") {
  encoded twelve = test::some_jpeg(8, 8);
  twelve[marker(twelve, 0xc0) + 4] = std::byte{12};
  CHECK(jpeg_error<ps::image_unsupported>(twelve).found() == "Unsupported JPEG data precision 12");
  encoded lossless = test::some_jpeg(8, 8);
  lossless[marker(lossless, 0xc0) + 1] = std::byte{0xc3};
  CHECK(jpeg_error<ps::image_unsupported>(lossless).found() ==
        "Unsupported JPEG process: SOF type 0xc3");
  // a marker after the first scan specifies the height.
  encoded counted_later = test::some_jpeg(8, 8);
  counted_later[marker(counted_later, 0xc0) + 6] = std::byte{0};
  CHECK(jpeg_error<ps::image_unsupported>(counted_later).found() ==
        "Empty JPEG image (DNL not supported)");
  const encoded two = test::some_jpeg(8, 8, {.across = 1, .down = 1, .components = 2});
  CHECK(jpeg_error<ps::image_unsupported>(two).found() == "2 components");
}

TEST_CASE("a JPEG image beyond a limit is rejected before it is decoded",
          "[image][fault:files-13]") {
  const encoded bytes = test::some_jpeg(20, 30, {.progressive = true});
  const auto pixels = jpeg_error<ps::image_too_large>(bytes, {.max_pixels = 599});
  CHECK(pixels.expected() == "at most 599 pixels (jpeg_options::max_pixels)");
  CHECK(pixels.found() == "20 x 30");
  const auto scans = jpeg_error<ps::image_too_large>(bytes, {.max_scans = 9});
  CHECK(scans.expected() == "at most 9 scans (jpeg_options::max_scans)");
  // The coefficients take two bytes each, in one plane of 32 x 32 and two planes of 16 x 16. There
  // are ten scans.
  ps::jpeg_decoder enough{{.max_pixels = 600, .max_scans = 10}};
  CHECK((test::all_of(enough, bytes) == test::decode_plainly(bytes)));
  const encoded large = test::some_jpeg(400, 400, {.progressive = true, .quality = 5});
  CHECK(jpeg_error<ps::image_too_large>(large, {.max_bytes = 100'000}).expected() ==
        "a JPEG image that libjpeg decodes within 100000 bytes (jpeg_options::max_bytes)");
  encoded claims = test::some_jpeg(8, 8);
  const std::size_t frame = marker(claims, 0xc0);
  for (const std::size_t at : {5u, 6u, 7u, 8u}) claims[frame + at] = std::byte{0xfd};
  CHECK(jpeg_error<ps::image_too_large>(claims).found() == "65021 x 65021");
}

TEST_CASE("a JPEG image of a few bytes that claims to be huge takes no memory", "[image]") {
  for (const bool progressive : {false, true}) {
    encoded claims = test::some_jpeg(8, 8, {.progressive = progressive});
    const std::size_t frame = marker(claims, progressive ? 0xc2 : 0xc0);
    for (const std::size_t at : {5u, 7u}) claims[frame + at] = std::byte{0x20};  // 8192 x 8192
    ps::jpeg_decoder decoder;
    CHECK_THROWS_AS(decoder.info(claims, "a.jpg"), ps::image_truncated);
  }
  // Huffman coding needs at least one bit per block. Arithmetic coding needs less.
  for (const bool arithmetic : {false, true}) {
    const encoded flat = test::encode_jpeg(std::vector<std::uint8_t>(4096 * 4096, 128), 4096, 4096,
                                           {.components = 1, .arithmetic = arithmetic});
    ps::jpeg_decoder decoder;
    CHECK(decoder.info(flat, "a.jpg").size.width == 4096);
  }
}

TEST_CASE("the tables of one image are never used for another", "[image][fault:files-13]") {
  const encoded bytes = test::some_jpeg(16, 16);
  encoded bare = bytes;
  const std::size_t tables = marker(bytes, 0xdb);
  bare.erase(bare.begin() + static_cast<std::ptrdiff_t>(tables),
             bare.begin() + static_cast<std::ptrdiff_t>(marker(bytes, 0xc0)));
  ps::jpeg_decoder decoder;
  (void)test::all_of(decoder, bytes);
  CHECK_THROWS_AS(test::all_of(decoder, bare), ps::image_corrupt);
  CHECK(jpeg_error<ps::image_corrupt>(bare).found() == "Quantization table 0x00 was not defined");
}

TEST_CASE("the orientation is applied if requested", "[image]") {
  const encoded bytes = test::some_jpeg(29, 18, {.across = 1, .down = 1});
  ps::jpeg_decoder plain;
  const auto stored = test::all_of(plain, bytes);
  ps::jpeg_decoder turning{{.orientation = true}};
  CHECK((test::all_of(turning, bytes) == stored));
  for (unsigned number = 1; number <= 8; ++number) {
    const encoded image = test::turned(bytes, number, number % 2 == 0);
    CHECK(plain.info(image, "a") == ps::image_info{{29, 18}, 3, 1});
    CHECK((test::all_of(plain, image) == stored));
    const ps::image_info info = turning.info(image, "a");
    CHECK(info.orientation == static_cast<int>(number));
    CHECK(info.size == (number >= 5 ? ps::image_size{18, 29} : ps::image_size{29, 18}));
    const ps::image_box box{2, 3, {11, 13}};
    const auto part = test::part_of(turning, image, box);
    bool same = true;
    for (std::size_t y = 0; y < 13; ++y) {
      for (std::size_t x = 0; x < 11; ++x) {
        // The EXIF orientation specifies the location of stored row 0 and column 0: 1 top left, 2
        // top right, 3 bottom right, 4 bottom left, 5 left top, 6 right top, 7 right bottom, 8 left
        // bottom.
        const std::size_t u = x + 2;
        const std::size_t v = y + 3;
        const std::array<std::array<std::size_t, 2>, 8> seen{{{u, v},
                                                              {28 - u, v},
                                                              {28 - u, 17 - v},
                                                              {u, 17 - v},
                                                              {v, u},
                                                              {v, 17 - u},
                                                              {28 - v, 17 - u},
                                                              {28 - v, u}}};
        const auto [column, row] = seen[number - 1];
        for (std::size_t channel = 0; channel < 3; ++channel) {
          same =
              same && part[(y * 11 + x) * 3 + channel] == stored[(row * 29 + column) * 3 + channel];
        }
      }
    }
    CHECK(same);
  }
  for (const unsigned nonsense : {0u, 9u}) {
    CHECK(turning.info(test::turned(bytes, nonsense, true), "a").orientation == 1);
  }
}

TEST_CASE("an orientation of four bytes counts too", "[image]") {
  for (const bool little : {true, false}) {
    encoded image = test::turned(test::some_jpeg(8, 8), 6, little);
    image[little ? 24 : 25] = std::byte{4};  // the type LONG
    if (!little) std::swap(image[31], image[33]);
    CHECK(ps::detail::jpeg_orientation(image) == 6);
    image[little ? 32 : 31] = std::byte{1};
    // The value is 65542, whose lower 16 bits are 6, a valid orientation.
    CHECK(ps::detail::jpeg_orientation(image) == 1);
  }
}

TEST_CASE("an EXIF block is read inside its bytes only", "[image]") {
  const encoded bytes = test::turned(test::some_jpeg(8, 8), 6, false);
  for (std::size_t size = 0; size < 44; ++size) {
    // The buffer has exactly the size of the data, so that a sanitizer detects reads beyond the
    // end.
    const encoded part = test::first_of(bytes, size);
    CHECK(ps::detail::jpeg_orientation(part) == (size < 38 ? 1 : 6));
    if (size < 12) continue;
    const encoded block{bytes.begin() + 12, bytes.begin() + static_cast<std::ptrdiff_t>(size)};
    CHECK(ps::detail::tiff_orientation(block) == (size < 12 + 22 ? 1 : 6));
  }
  for (std::size_t at = 2; at < 38; ++at) {
    for (const unsigned value : {0u, 0x7fu, 0xffu}) {
      encoded damaged = bytes;
      damaged[at] = static_cast<std::byte>(value);
      const int number = ps::detail::jpeg_orientation(damaged);
      CHECK((number == 1 || number == 6));
    }
  }
}

TEST_CASE("a box outside the image is rejected", "[image]") {
  const encoded bytes = test::some_jpeg(20, 10);
  std::vector<std::uint8_t> room(20 * 10 * 3);
  ps::jpeg_decoder decoder;
  const auto decode = [&](const ps::image_box& box, const ps::image_size& size,
                          std::size_t channels, unsigned denominator) {
    decoder.decode(bytes, "a", box, {room.data(), size, channels, 60}, denominator);
  };
  CHECK_NOTHROW(decode({0, 0, {20, 10}}, {20, 10}, 3, 1));
  CHECK_THROWS_AS(decode({0, 0, {21, 10}}, {21, 10}, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(decode({1, 0, {20, 10}}, {20, 10}, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(decode({0, 1, {20, 10}}, {20, 10}, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(decode({0, 0, {0, 10}}, {0, 10}, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(decode({0, 0, {5, 0}}, {5, 0}, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(decode({0, 0, {11, 5}}, {11, 5}, 3, 2), std::invalid_argument);
  CHECK_THROWS_AS(decode({0, 0, {5, 5}}, {5, 4}, 3, 1), std::invalid_argument);
  CHECK_THROWS_AS(decode({0, 0, {5, 5}}, {5, 5}, 4, 1), std::invalid_argument);
  CHECK_THROWS_AS(decode({0, 0, {5, 5}}, {5, 5}, 3, 3), std::invalid_argument);
  CHECK_THROWS_WITH(decode({1, 0, {20, 10}}, {20, 10}, 3, 1),
                    "jpeg_decoder: expected a box inside the image of 20 x 10, found 20 x 10 at "
                    "(1, 0)");
}

TEST_CASE("a copy of a JPEG decoder has its options", "[image]") {
  const ps::jpeg_decoder decoder{{.strict = false, .max_pixels = 7}};
  ps::jpeg_decoder copy{decoder};
  CHECK(copy.options().max_pixels == 7);
  copy = ps::jpeg_decoder{};
  CHECK(copy.options().strict);
  CHECK(test::all_of(copy, test::some_jpeg(9, 9)).size() == 243);
}
