// SPDX-License-Identifier: BSL-1.0
// Tests datasets that decode JPEG files in memory and decode only the crop of each image.
#include <penstock_ext/image/decode.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "data/read_batch.hpp"
#include "ext/image/blobs.hpp"
#include "ext/image/jpeg_images.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

struct halves {
  [[nodiscard]] ps::image_size size() const { return {20, 15}; }
  [[nodiscard]] ps::image_plan plan(const ps::image_size& image, ps::sample_generator&) const {
    return {{3, 5, {image.width - 10, image.height - 9}}, {20, 15}, {0, 0, {20, 15}}};
  }
};

}  // namespace

TEST_CASE("a sample of JPEG images is the crop of the decoded one, resized",
          "[image][promise:exact-15]") {
  test::blobs blobs;
  for (std::size_t i = 0; i < 40; ++i) {
    blobs.all.push_back(test::some_jpeg(40 + 7 * i, 90 - 2 * i, {.progressive = i % 5 == 0}, i));
  }
  const auto data = blobs | ps::decode_images<ps::jpeg_decoder>(test::some_crop{});
  const ps::random_key key{.seed = 5};
  std::vector<std::uint64_t> indices(40);
  for (std::size_t i = 0; i < 40; ++i) indices[i] = i;
  auto batch = test::read_batch(data, indices, key);
  ps::jpeg_decoder decoder;
  ps::resizer resize;
  for (std::size_t i = 0; i < 40; ++i) {
    const ps::image_size size = decoder.info(blobs.all[i], "").size;
    ps::sample_generator random{key, i};
    const ps::image_plan plan = test::some_crop{}.plan(size, random);
    const auto whole = test::decode_plainly(blobs.all[i]);
    std::vector<std::uint8_t> right(12 * 10 * 3);
    resize({whole.data(), size, 3, size.width * 3}, plan, {right.data(), {12, 10}, 3, 36});
    const auto image = ps::get<"image">(batch.view()[i]).flat();
    CHECK(std::equal(right.begin(), right.end(), image.begin(), image.end()));
  }
}

TEST_CASE("large crops are decoded at a smaller scale if requested", "[image]") {
  test::blobs blobs;
  constexpr std::array<ps::image_size, 7> factors{
      {{1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}, {2, 8}, {8, 4}}};
  for (const auto& [across, down] : factors) {
    blobs.all.push_back(test::some_jpeg(20 * across + 10, 15 * down + 9));
  }
  const std::vector<std::uint64_t> indices{0, 1, 2, 3, 4, 5, 6};
  const auto data = blobs | ps::decode_images<ps::jpeg_decoder>(halves{}, {.scaled = true});
  auto batch = test::read_batch(data, indices);
  ps::jpeg_decoder decoder;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    // The crop is 20 x 15 pixels times the sampling factors, and starts at column 3 and row 5.
    const auto [across, down] = factors[i];
    const auto denominator = static_cast<unsigned>(std::min({across, down, std::size_t{8}}));
    const std::size_t left = 3 / denominator;
    const std::size_t top = 5 / denominator;
    const std::size_t right = (3 + 20 * across + denominator - 1) / denominator;
    const std::size_t bottom = (5 + 15 * down + denominator - 1) / denominator;
    const ps::image_box box{left, top, {right - left, bottom - top}};
    std::vector<std::uint8_t> crop(box.size.width * box.size.height * 3);
    const ps::pixels scaled{crop.data(), box.size, 3, box.size.width * 3};
    decoder.decode(blobs.all[i], "", box, scaled, denominator);
    std::vector<std::uint8_t> wanted(20 * 15 * 3);
    ps::resizer{}(scaled, {wanted.data(), {20, 15}, 3, 60});
    const auto image = ps::get<"image">(batch.view()[i]).flat();
    CHECK(std::equal(wanted.begin(), wanted.end(), image.begin(), image.end()));
  }
}
