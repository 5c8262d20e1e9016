// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/nvimgcodec/nvimgcodec_batch.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/image/jpeg/jpeg.hpp>

#include "ext/image/blobs.hpp"
#include "ext/image/decoded.hpp"
#include "ext/image/jpeg_images.hpp"
#include "ext/image/png_images.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;

namespace {

// Encoded images of different sizes, a box for each image, and memory for the pixels.
struct some_batch {
  std::vector<test::encoded> encoded;
  std::vector<std::string> keys;
  std::vector<std::vector<std::uint8_t>> room;
  std::vector<ps::nvimgcodec_image> images;

  void add(const test::encoded& bytes, const ps::image_box& box) {
    encoded.push_back(bytes);
    keys.push_back("folder/" + std::to_string(keys.size()));
    room.emplace_back(box.size.width * box.size.height * 3, 0xcd);
    images.clear();
    boxes.push_back(box);
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      const ps::image_size size = boxes[i].size;
      images.push_back({encoded[i], keys[i], boxes[i], {room[i].data(), size, 3, size.width * 3}});
    }
  }

  [[nodiscard]] bool is_right(std::size_t i) const {
    ps::jpeg_decoder jpeg;
    return room[i] == test::part_of(jpeg, encoded[i], boxes[i]);
  }

 private:
  std::vector<ps::image_box> boxes;
};

some_batch twelve_images() {
  some_batch batch;
  for (std::size_t i = 0; i < 12; ++i) {
    batch.add(test::some_jpeg(60 - 3 * i, 30 + i, {.progressive = i % 3 == 1}, i),
              {i, i / 2, {60 - 4 * i, 20}});
  }
  return batch;
}

}  // namespace

TEST_CASE("each image of a batch is decoded to its place with any number of threads",
          "[nvimgcodec][promise:exact-17]") {
  for (const int threads : {0, 1, 3}) {
    some_batch batch = twelve_images();
    ps::nvimgcodec_batch decoder{{.threads = threads}};
    const auto results = decoder.decode(batch.charts);
    REQUIRE(results.size() == 12);
    for (std::size_t i = 0; i < 12; ++i) {
      CHECK(results[i].backend == ps::nvimgcodec_backend::cpu);
      CHECK(results[i].failure == nullptr);
      CHECK(batch.is_right(i));
    }
    CHECK(decoder.backend() == ps::nvimgcodec_backend::cpu);
    CHECK(decoder.decode({}).empty());
    CHECK(decoder.backend() == ps::nvimgcodec_backend::any);
  }
}

TEST_CASE("the images of a blob source are decoded in one call", "[nvimgcodec]") {
  const test::blobs photos{{test::some_jpeg(50, 40), test::some_jpeg(30, 60, {}, 2)}};
  const ps::image_box box{2, 3, {24, 24}};
  std::vector<std::uint8_t> values(photos.size() * 24 * 24 * 3);

  std::vector<ps::blob_buffer> buffers(photos.size());
  std::vector<std::string> keys(photos.size());
  std::vector<ps::nvimgcodec_image> images;
  for (std::size_t i = 0; i < photos.size(); ++i) {
    keys[i] = photos.key(i);
    const ps::pixels out{values.data() + i * 24 * 24 * 3, box.size, 3, 24 * 3};
    images.push_back({photos.bytes(i, buffers[i]), keys[i], box, out});
  }
  ps::nvimgcodec_batch decoder;  // a GPU would need {{.device = 0}} and a stream for decode
  decoder.decode(images);
  CHECK(decoder.backend() == ps::nvimgcodec_backend::cpu);

  ps::jpeg_decoder jpeg;
  std::vector<std::uint8_t> right = test::part_of(jpeg, photos.all[0], box);
  const auto second = test::part_of(jpeg, photos.all[1], box);
  right.insert(right.end(), second.begin(), second.end());
  CHECK((values == right));
}

TEST_CASE("a failure in a batch names its image, and the others are decoded",
          "[nvimgcodec][fault:files-14]") {
  some_batch batch = twelve_images();
  batch.add(test::first_of(batch.encoded[0], 300), {0, 0, {60, 30}});
  batch.add(test::bytes_of("GIF89a image"), {0, 0, {1, 1}});
  batch.add(test::some_jpeg(40, 40), {1, 0, {40, 40}});
  batch.add(test::some_jpeg(300, 300), {0, 0, {1, 1}});
  test::encoded damaged = test::some_png(20, 20).bytes;
  damaged[damaged.size() / 2] ^= std::byte{0x55};
  batch.add(damaged, {0, 0, {20, 20}});
  batch.add(test::some_jpeg(20, 20), {0, 0, {20, 20}});

  ps::nvimgcodec_batch decoder{{.max_pixels = 10000}};
  const auto first = test::error_of<ps::image_truncated>([&] { decoder.decode(batch.charts); });
  CHECK(first.path() == "folder/12");
  const std::span<const ps::nvimgcodec_result> results = decoder.results();
  REQUIRE(results.size() == 18);
  const auto failure = [&](std::size_t i) {
    CHECK(results[i].backend == ps::nvimgcodec_backend::any);
    REQUIRE(results[i].failure);
    std::rethrow_exception(results[i].failure);
  };
  CHECK(test::error_of<ps::image_unsupported>([&] { failure(13); }).path() == "folder/13");
  CHECK(test::has(test::error_of<std::invalid_argument>([&] { failure(14); }).what(), "folder/14"));
  const auto large = test::error_of<ps::image_too_large>([&] { failure(15); });
  CHECK(large.path() == "folder/15");
  CHECK(test::has(large.expected(), "nvimgcodec_batch_options::max_pixels"));
  CHECK(test::error_of<ps::image_corrupt>([&] { failure(16); }).path() == "folder/16");
  for (std::size_t i = 0; i < 18; i += i == 11 ? 6 : 1) {
    CHECK(results[i].failure == nullptr);
    CHECK(results[i].backend == ps::nvimgcodec_backend::cpu);
    CHECK(batch.is_right(i));
  }
  CHECK(decoder.backend() == ps::nvimgcodec_backend::cpu);

  some_batch next = twelve_images();  // decodes like the first batch
  CHECK(decoder.decode(next.charts).size() == 12);
  for (std::size_t i = 0; i < 12; ++i) CHECK(next.is_right(i));
}

TEST_CASE("a back end that is not available is an error before anything is decoded",
          "[nvimgcodec][fault:files-14]") {
  for (const auto backend : {ps::nvimgcodec_backend::gpu, ps::nvimgcodec_backend::hybrid}) {
    const auto problem = test::error_of<ps::nvimgcodec_unavailable>(
        [&] { ps::nvimgcodec_batch{{.backend = backend}}; });
    CHECK(test::has(problem.what(), "nvimgcodec_batch_options::device"));
  }
  // No machine has a GPU with this number.
  const auto problem =
      test::error_of<ps::nvimgcodec_unavailable>([] { ps::nvimgcodec_batch{{.device = 1000}}; });
  CHECK(test::has(problem.what(), "for GPU 1000"));
  CHECK(test::has(problem.what(), "nvidia-smi"));
  for (const int number : {-1, -99999}) {  // nvImageCodec uses these values for other purposes
    CHECK_THROWS_AS((ps::nvimgcodec_batch{{.device = number}}), ps::option_error);
    CHECK_THROWS_AS((ps::nvimgcodec_batch{{.threads = number}}), ps::option_error);
  }
  ps::nvimgcodec_batch cpu{{.backend = ps::nvimgcodec_backend::cpu}};
  some_batch batch = twelve_images();
  cpu.decode(batch.charts);
  CHECK(cpu.backend() == ps::nvimgcodec_backend::cpu);
}
