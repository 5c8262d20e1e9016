// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/png/png.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/image/decode.hpp>

#include "ext/image/blobs.hpp"
#include "ext/image/decoded.hpp"
#include "ext/image/png_images.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;
using test::encoded;

namespace {

using wide_values = std::vector<std::uint16_t>;

// An image that libpng has written, and its values as they are stored.
struct wide_png {
  encoded bytes;
  wide_values values;
  ps::image_size size;
  std::size_t channels;
};

// Returns an image with random values. Every second row resembles the row above it, so that libpng
// chooses several filters.
wide_png written_png(const ps::image_size& size, const test::png_kind& kind,
                     std::uint64_t seed = 1) {
  wide_png image{{}, {}, size, kind.channels()};
  ps::sample_generator random{{.seed = seed}, 0};
  const std::size_t row_values = size.width * image.channels;
  const std::uint32_t full = (1u << kind.depth) - 1;
  for (std::size_t i = 0; i < row_values * size.height; ++i) {
    const bool repeats = i / row_values % 2 == 1;
    const std::uint64_t value = repeats ? image.values[i - row_values] + i % 3 : random();
    image.values.push_back(static_cast<std::uint16_t>(value & full));
  }

  ::png_structp png = ::png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  ::png_infop info = ::png_create_info_struct(png);
  ::png_set_write_fn(
      png, &image.bytes,
      [](::png_structp from, ::png_bytep data, std::size_t count) {
        auto& to = *static_cast<encoded*>(::png_get_io_ptr(from));
        const auto* begin = reinterpret_cast<const std::byte*>(data);
        to.insert(to.end(), begin, begin + count);
      },
      nullptr);
  ::png_set_IHDR(png, info, static_cast<::png_uint_32>(size.width),
                 static_cast<::png_uint_32>(size.height), static_cast<int>(kind.depth),
                 static_cast<int>(kind.color),
                 kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (kind.color == 3) {
    std::vector<::png_color> palette(full + 1);
    ::png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  ::png_write_info(png, info);
  ::png_set_packing(png);
  const std::size_t value_bytes = kind.depth == 16 ? 2 : 1;
  std::vector<::png_byte> rows;
  for (const std::uint16_t value : image.values) {
    if (value_bytes == 2) rows.push_back(static_cast<::png_byte>(value >> 8));
    rows.push_back(static_cast<::png_byte>(value & 255));
  }
  std::vector<::png_bytep> starts;
  for (std::size_t y = 0; y < size.height; ++y) {
    starts.push_back(rows.data() + y * row_values * value_bytes);
  }
  ::png_write_image(png, starts.data());
  ::png_write_end(png, nullptr);
  ::png_destroy_write_struct(&png, &info);
  return image;
}

// Decodes the region `box` into rows with a gap of three values, which must remain unchanged.
wide_values wide_part(ps::png_decoder& decoder, std::span<const std::byte> bytes,
                      const ps::image_box& box, std::size_t channels) {
  const std::size_t row = box.size.width * channels;
  const std::size_t pitch = row + 3;
  wide_values values(pitch * box.size.height, 0xabcd);
  decoder.decode16(bytes, "an image", box, {values.data(), box.size, channels, pitch});
  wide_values packed;
  for (std::size_t y = 0; y < box.size.height; ++y) {
    for (std::size_t x = 0; x < pitch; ++x) {
      if (x < row) packed.push_back(values[y * pitch + x]);
      if (x >= row && values[y * pitch + x] != 0xabcd) return {};
    }
  }
  return packed;
}

wide_values wide_image(ps::png_decoder& decoder, const wide_png& image, std::size_t channels) {
  return wide_part(decoder, image.bytes, {0, 0, image.size}, channels);
}

// Returns the region `box` of an image, with gray repeated if `channels` exceeds the stored number.
wide_values expected_part(const wide_png& image, const ps::image_box& box, std::size_t channels,
                          unsigned factor = 1) {
  wide_values values;
  for (std::size_t y = box.top; y < box.top + box.size.height; ++y) {
    for (std::size_t x = box.left; x < box.left + box.size.width; ++x) {
      const std::size_t pixel = (y * image.size.width + x) * image.channels;
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t added = channels - image.channels;
        const std::size_t stored = c < added ? 0 : c - added;
        values.push_back(static_cast<std::uint16_t>(image.values[pixel + stored] * factor));
      }
    }
  }
  return values;
}

ps::image_box random_box(ps::sample_generator& random, const ps::image_size& size) {
  const std::size_t width = ps::uniform(random, std::size_t{1}, size.width);
  const std::size_t height = ps::uniform(random, std::size_t{1}, size.height);
  return {ps::uniform(random, std::size_t{0}, size.width - width),
          ps::uniform(random, std::size_t{0}, size.height - height),
          {width, height}};
}

// A geometry whose type is known only at run time, so that all tests share the type of a loader.
struct any_geometry {
  template <ps::image_geometry G>
  any_geometry(G geometry)  // NOLINT: implicit, so that tests can pass any geometry
      : all(geometry.size()),
        draw([geometry](const ps::image_size& image, ps::sample_generator& random) {
          return geometry.plan(image, random);
        }) {}
  [[nodiscard]] ps::image_size size() const { return all; }
  [[nodiscard]] ps::image_plan plan(const ps::image_size& image,
                                    ps::sample_generator& random) const {
    return draw(image, random);
  }

  ps::image_size all;
  std::function<ps::image_plan(const ps::image_size&, ps::sample_generator&)> draw;
};

// A plan that is not symmetric: a crop with a border, mirrored.
struct bordered_crop {
  bool mirrored = true;
  [[nodiscard]] ps::image_size size() const { return {9, 8}; }
  [[nodiscard]] ps::image_plan plan(const ps::image_size&, ps::sample_generator&) const {
    return {{2, 1, {9, 7}}, {9, 7}, {1, 2, {5, 4}}, mirrored, {3, 1, 1, 3}};
  }
};

// Returns the values of the field "image" of all samples, in order.
template <class Dataset>
auto loaded_values(const Dataset& data, std::uint32_t workers) {
  ps::loader loader{data, ps::sequential{}, {.batch_size = 3, .workers = workers}};
  std::vector<int> values;
  for (auto& batch : loader.epoch(0)) {
    const auto image = ps::get<"image">(batch);
    values.insert(values.end(), image.data(), image.data() + image.size());
    const auto label = ps::get<"label">(batch);
    values.insert(values.end(), label.data(), label.data() + label.size());
  }
  return values;
}

}  // namespace

TEST_CASE("decode16 returns the stored values of every PNG image of 16 bits, whole or in part",
          "[image]") {
  ps::png_decoder decoder{{.clip_grey = true}};
  ps::sample_generator random{{.seed = 3}, 0};
  for (const bool interlaced : {false, true}) {
    for (const unsigned color : {0u, 2u, 4u, 6u}) {
      for (const ps::image_size& size : {ps::image_size{33, 18}, {1, 1}, {5, 40}}) {
        const wide_png image = written_png(size, {color, 16, interlaced}, random());
        for (std::size_t channels = image.channels; channels < 5; channels += 2) {
          CAPTURE(color, interlaced, size.width, channels);
          CHECK((wide_image(decoder, image, channels) ==
                 expected_part(image, {0, 0, size}, channels)));
          for (int i = 0; i < 4; ++i) {
            const ps::image_box box = random_box(random, size);
            CHECK((wide_part(decoder, image.bytes, box, channels) ==
                   expected_part(image, box, channels)));
          }
        }
      }
    }
  }
}

TEST_CASE("decode16 scales fewer bits exactly if png_options::widen is set", "[image]") {
  ps::png_decoder decoder{{.widen = true}};
  for (const bool interlaced : {false, true}) {
    for (const test::png_kind& kind :
         {test::png_kind{0, 1}, {0, 2}, {0, 4}, {0, 8}, {2, 8}, {4, 8}, {6, 8}, {0, 16}}) {
      const wide_png image = written_png({19, 11}, {kind.color, kind.depth, interlaced});
      CAPTURE(kind.color, kind.depth, interlaced);
      const unsigned factor = 65535 / ((1u << kind.depth) - 1);
      const std::size_t channels = image.channels;
      CHECK((wide_image(decoder, image, channels) ==
             expected_part(image, {0, 0, image.size}, channels, factor)));
      if (channels > 2) continue;
      CHECK((wide_image(decoder, image, channels + 2) ==
             expected_part(image, {0, 0, image.size}, channels + 2, factor)));
    }
  }
}

TEST_CASE("decode16 rejects every conversion that would lose or invent values", "[image]") {
  const auto problem_of = [](const test::png_kind& kind, std::size_t channels, bool widen = false) {
    ps::png_decoder decoder{{.widen = widen}};
    const wide_png image = written_png({7, 5}, kind);
    const auto problem = test::error_of<ps::image_unsupported>(
        [&] { static_cast<void>(wide_image(decoder, image, channels)); });
    CHECK(problem.path() == "an image");
    return problem;
  };
  const auto narrow = problem_of({0, 8}, 1);
  CHECK(narrow.offset() == 24);
  CHECK(narrow.found() == "8");
  CHECK(narrow.expected().find("png_options::widen") != std::string::npos);
  CHECK(problem_of({3, 8}, 3, true).found() == "a palette");
  CHECK(problem_of({2, 16}, 1).found() == "3");
  CHECK(problem_of({2, 16}, 4).offset() == 25);
  CHECK(problem_of({0, 16}, 2).found() == "1");
  CHECK(problem_of({0, 16}, 4).found() == "1");
  CHECK(problem_of({4, 16}, 1).found() == "2");
  CHECK(problem_of({4, 16}, 3).found() == "2");
  CHECK(problem_of({6, 16}, 3).found() == "4");
  CHECK(problem_of({6, 16}, 2).found() == "4");

  ps::png_decoder decoder;
  const wide_png image = written_png({7, 5}, {0, 16});
  CHECK_THROWS_AS(wide_image(decoder, image, 0), std::invalid_argument);
  CHECK_THROWS_AS(wide_image(decoder, image, 5), std::invalid_argument);
  CHECK_THROWS_AS(wide_part(decoder, image.bytes, {1, 0, {7, 5}}, 1), std::invalid_argument);
  CHECK((wide_image(decoder, image, 1) == image.values));
}

TEST_CASE("decode16 keeps the values of an image with a transparent color", "[image]") {
  std::vector<std::byte> color;
  test::put_chunk(color, "tRNS", {std::byte{0}, std::byte{0}});
  test::png_image made = test::some_png(9, 9, {0, 16, false, true}, 1, color);
  ps::png_decoder decoder;
  CHECK((wide_part(decoder, made.bytes, {0, 0, {9, 9}}, 1) == wide_values(81, 0)));
  CHECK((wide_part(decoder, made.bytes, {0, 0, {9, 9}}, 3) == wide_values(243, 0)));
}

TEST_CASE("damage to a PNG image of 16 bits never changes the values that decode16 returns",
          "[image][fault:files-13]") {
  ps::png_decoder decoder{{.widen = true, .max_pixels = 1 << 16}};
  for (const bool interlaced : {false, true}) {
    const wide_png image = written_png({9, 7}, {2, 16, interlaced});
    for (std::size_t size = 0; size < image.bytes.size(); ++size) {
      const wide_png part{test::first_of(image.bytes, size), {}, image.size, 3};
      // The end chunk of twelve bytes is optional.
      if (size + 12 >= image.bytes.size()) {
        CHECK((wide_image(decoder, part, 3) == image.values));
      } else {
        CHECK_THROWS_AS(wide_image(decoder, part, 3), ps::image_truncated);
      }
    }
    std::size_t rejected = 0;
    for (std::size_t bit = 0; bit < image.bytes.size() * 8; ++bit) {
      wide_png damaged{image.bytes, {}, image.size, 3};
      damaged.bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      try {
        const wide_values found = wide_image(decoder, damaged, 3);
        CHECK((found == image.values));
      } catch (const ps::file_error& problem) {
        ++rejected;
        CHECK(problem.offset() <= damaged.bytes.size());
      } catch (const std::invalid_argument&) {
        ++rejected;  // the box exceeds the changed size
      }
    }
    CHECK(rejected == (image.bytes.size() - 12) * 8);  // every bit before the end chunk
    CHECK((wide_image(decoder, image, 3) == image.values));
  }
}

TEST_CASE("2,000 PNG images of 16 bits have the values that libpng wrote, whole and damaged",
          "[image][large][fault:files-13]") {
  ps::png_decoder decoder{{.max_pixels = 1 << 16}};
  ps::sample_generator random{{.seed = 5}, 0};
  std::size_t rejected = 0;
  for (int i = 0; i < 2000; ++i) {
    const ps::image_size size{ps::uniform(random, std::size_t{1}, std::size_t{40}),
                              ps::uniform(random, std::size_t{1}, std::size_t{40})};
    const auto color = static_cast<unsigned>(2 * ps::uniform(random, 0, 3));
    const wide_png image = written_png(size, {color, 16, i % 2 == 1}, random());
    CAPTURE(i, color, size.width, size.height);
    CHECK((wide_image(decoder, image, image.channels) == image.values));
    wide_png damaged = image;
    const std::size_t at = ps::uniform(random, std::size_t{0}, image.bytes.size() - 13);
    if (i % 4 == 0) {
      damaged.bytes.resize(at);
    } else {
      damaged.bytes[at] ^= static_cast<std::byte>(1u << ps::uniform(random, 0, 7));
    }
    try {
      const wide_values found = wide_image(decoder, damaged, image.channels);
      CHECK((found == image.values));
    } catch (const ps::file_error&) {
      ++rejected;
    } catch (const std::invalid_argument&) {
      ++rejected;  // the box exceeds the changed size
    }
  }
  CHECK(rejected == 2000);  // all damage is before the end chunk
}

TEST_CASE("decode_images16 reads images of 16 bits into batches, with and without workers",
          "[image]") {
  test::blobs source;
  for (std::uint64_t i = 0; i < 7; ++i) {
    source.all.push_back(written_png({15 + i, 12}, {2, 16, i % 2 == 1}, i).bytes);
  }
  // The upper bytes equal the 8-bit values of the same geometry and seed.
  const auto check_upper_bytes = [&source](const any_geometry& geometry) {
    const auto wide = source | ps::decode_images16<3, ps::png_decoder>(geometry);
    const auto values = loaded_values(wide, 0);
    CHECK((values == loaded_values(wide, 2)));
    const auto bytes = loaded_values(source | ps::decode_images<ps::png_decoder>(geometry), 0);
    REQUIRE(values.size() == bytes.size());
    CHECK(std::equal(values.begin(), values.end(), bytes.begin(), [](int value, int byte) {
      return value == byte || value >> 8 == byte;  // labels are equal
    }));
    CHECK(*std::max_element(values.begin(), values.end()) > 60'000);
  };
  check_upper_bytes(ps::random_crop{8, {.padding = 5}} | ps::random_flip{});
  check_upper_bytes(ps::center_crop{16});  // larger than some images
  check_upper_bytes(bordered_crop{true});
  check_upper_bytes(bordered_crop{false});
}

TEST_CASE("the loader returns the stored depths of PNG files of 16 bits", "[image]") {
  test::blobs maps;
  const wide_png depth = written_png({9, 7}, {0, 16}, 2);
  const wide_values& stored = depth.values;
  maps.all = {written_png({9, 7}, {0, 16}).bytes, depth.bytes};
  const ps::whole geometry{ps::image_size{.width = 9, .height = 7}};
  const auto depths = maps | ps::decode_images16<1, ps::png_decoder>(geometry);
  ps::loader loader{depths, ps::sequential{}, {.batch_size = 2}};
  for (auto& batch : loader.epoch(0)) {
    const auto image = ps::get<"image">(batch);  // N x 7 x 9 x 1 values of std::uint16_t
    CHECK(image(1, 3, 4, 0) == stored[3 * 9 + 4]);
  }
}

TEST_CASE("decode_images16 rejects geometries that resize, and passes options to its decoders",
          "[image]") {
  test::blobs source;
  source.all.push_back(written_png({8, 6}, {0, 8}).bytes);
  const auto read = [&source](const any_geometry& geometry, bool widen) {
    return loaded_values(
        source | ps::decode_images16<1>(geometry, ps::png_decoder{{.widen = widen}}), 0);
  };
  const auto problem =
      test::error_of<std::invalid_argument>([&] { static_cast<void>(read(ps::whole{4}, true)); });
  const std::string text = problem.what();
  CHECK(text.find("folder/0.any: decode_images16: expected a geometry that does not resize") == 0);
  CHECK(text.find("8 x 6 resized to 4 x 4") != std::string::npos);

  CHECK_THROWS_AS(read(ps::center_crop{4}, false), ps::image_unsupported);
  const auto values = read(ps::center_crop{4}, true);
  CHECK(std::all_of(values.begin(), values.end() - 1, [](int value) { return value % 257 == 0; }));
  CHECK(*std::max_element(values.begin(), values.end() - 1) > 255);
}
