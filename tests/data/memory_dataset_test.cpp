// SPDX-License-Identifier: BSL-1.0
#include <penstock/data/memory_dataset.hpp>

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "data/read_batch.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using signed_digit =
    ps::record<ps::field<"image", std::uint16_t, 2, 3>, ps::field<"label", std::int8_t>>;
using text = ps::record<ps::field<"length", int>, ps::field<"tokens", std::int64_t, ps::dyn>>;

// Arrays of ten images with consecutive pixel values and of ten labels.
struct two_arrays {
  std::vector<std::uint16_t> pixels = std::vector<std::uint16_t>(60);
  std::vector<std::int8_t> labels = std::vector<std::int8_t>(10);

  two_arrays() {
    std::iota(pixels.begin(), pixels.end(), std::uint16_t{0});
    std::iota(labels.begin(), labels.end(), std::int8_t{-5});
  }
};

}  // namespace

TEST_CASE("a memory dataset copies the requested samples to their places", "[data]") {
  const two_arrays source;
  const ps::memory_dataset<signed_digit> data{source.pixels, source.labels};
  CHECK(data.size() == 10);
  auto batch = test::read_batch(data, {9, 0, 4, 4, 7, 2});
  CHECK(ps::get<"label">(batch.view()[0]) == 4);
  CHECK(ps::get<"label">(batch.view()[3]) == -1);
  for (std::uint16_t j = 0; j < 6; ++j) {
    CHECK(ps::get<"image">(batch.view()[0]).flat()[j] == 54 + j);
    CHECK(ps::get<"image">(batch.view()[1]).flat()[j] == j);
    CHECK(ps::get<"image">(batch.view()[4]).flat()[j] == 42 + j);
  }
}

TEST_CASE("arrays may be spans, vectors and C arrays", "[data]") {
  const std::uint16_t pixels[12] = {};
  const std::vector<std::int8_t> labels{1, 2};
  const ps::memory_dataset<signed_digit> data{pixels, std::span{labels}};
  CHECK(data.size() == 2);
  CHECK(ps::get<"label">(data.view(1)) == 2);
}

TEST_CASE("a view of a sample refers to the array's memory", "[data]") {
  const two_arrays source;
  const ps::memory_dataset<signed_digit> data{source.pixels, source.labels};
  CHECK(ps::get<"image">(data.view(3)).data() == source.pixels.data() + 18);
  CHECK(&ps::get<"label">(data.view(3)) == source.labels.data() + 3);
}

TEST_CASE("dynamic extents are specified before the arrays", "[data]") {
  const std::array<int, 2> lengths{3, 4};
  std::vector<std::int64_t> tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  const ps::memory_dataset<text> data{{{}, {5}}, lengths, tokens};
  CHECK(data.size() == 2);
  CHECK(data.extents().at<1>()[0] == 5);
  CHECK(test::values<"tokens">(test::read_batch(data, {1})) ==
        std::vector<std::int64_t>{5, 6, 7, 8, 9});
  CHECK(ps::get<"tokens">(data.view(1)).size() == 5);
}

TEST_CASE("the arrays of a memory dataset must match", "[data]") {
  two_arrays source;
  const auto make = [&] { return ps::memory_dataset<signed_digit>{source.pixels, source.labels}; };
  const auto message_of = [&] {
    try {
      (void)make();
    } catch (const ps::array_mismatch& problem) {
      return problem.field() + " " + std::to_string(problem.found()) + " | " + problem.what();
    }
    return std::string{"nothing thrown"};
  };
  SECTION("the last sample of the first array is incomplete") {
    source.pixels.pop_back();
    CHECK(
        message_of() ==
        "image 59 | memory_dataset: field \"image\": expected a multiple of 6 elements, found 59");
  }
  SECTION("another array is too short") {
    source.labels.pop_back();
    CHECK(message_of() ==
          "label 9 | memory_dataset: field \"label\": expected 10 x 1 elements, found 9");
  }
  SECTION("another array is too long") {
    source.labels.push_back(0);
    CHECK(message_of() ==
          "label 11 | memory_dataset: field \"label\": expected 10 x 1 elements, found 11");
  }
  SECTION("another array has the wrong extents") {
    const std::array<int, 2> lengths{3, 4};
    const std::vector<std::int64_t> tokens(11);
    CHECK_THROWS_AS((ps::memory_dataset<text>{{{}, {5}}, lengths, tokens}), ps::array_mismatch);
  }
  SECTION("an extent is 0") {
    const std::array<int, 2> lengths{3, 4};
    const std::vector<std::int64_t> tokens;
    CHECK_THROWS_AS((ps::memory_dataset<text>{{{}, {0}}, lengths, tokens}), ps::layout_error);
  }
}

TEST_CASE("an index beyond the end is rejected and named", "[data][fault:samples-3]") {
  const two_arrays source;
  const ps::memory_dataset<signed_digit> data{source.pixels, source.labels};
  test::batch_memory<signed_digit> memory{{}, 3};
  const std::vector<std::uint64_t> indices{9, 10, 0};
  ps::reader reader{data};
  CHECK_THROWS_AS(reader.read(indices, memory.view(), {}), ps::index_error);
  CHECK(reader.failed_at() == 1);
  CHECK_THROWS_AS(data.view(10), ps::index_error);
}

TEST_CASE("a hint for an index beyond the end is harmless", "[data]") {
  const two_arrays source;
  const ps::memory_dataset<signed_digit> data{source.pixels, source.labels};
  data.prefetch(9);
  data.prefetch(10);
  data.prefetch(~std::uint64_t{0});
  SUCCEED();
}

TEST_CASE("a memory dataset of no samples has size 0", "[data]") {
  const std::vector<std::uint16_t> pixels;
  const std::vector<std::int8_t> labels;
  CHECK(ps::memory_dataset<signed_digit>{pixels, labels}.size() == 0);
}

TEST_CASE("a record of one field needs one array", "[data]") {
  using number = ps::record<ps::field<"x", float>>;
  const std::vector<float> values{1, 2, 3};
  const ps::memory_dataset<number> data{values};
  const ps::memory_dataset<number> copy{data};
  CHECK(copy.size() == 3);
  CHECK(ps::get<"x">(copy.view(2)) == 3.0F);
}
