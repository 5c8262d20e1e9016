// SPDX-License-Identifier: BSL-1.0
#include "digits.hpp"

#include <array>
#include <filesystem>
#include <set>
#include <span>
#include <stdexcept>

#include <penstock/data/idx_dataset.hpp>

#include "sha256.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

using picture = std::array<std::uint8_t, 784>;

picture drawn(unsigned digit, std::uint64_t key) {
  picture p{};
  mlp::draw_digit(digit, key, p);
  return p;
}

}  // namespace

TEST_CASE("digits are the same bytes on every machine", "[mlp]") {
  mlp::sha256 sum;
  for (unsigned digit = 0; digit < 10; ++digit) {
    for (std::uint64_t key = 0; key < 20; ++key) {
      const picture p = drawn(digit, key);
      sum.add(std::as_bytes(std::span{p}));
    }
  }
  CHECK(sum.finish() == "7406d2b49db9e4d16a92188553a4ca7b52c5204cca1bfe039832f276bea08f18");
}

TEST_CASE("digits differ by figure and by key, and have ink", "[mlp]") {
  std::set<picture> all;
  for (unsigned digit = 0; digit < 10; ++digit) {
    for (std::uint64_t key = 0; key < 5; ++key) {
      const picture p = drawn(digit, key);
      int dark = 0;
      for (const auto value : p) dark += value > 150 ? 1 : 0;
      CHECK(dark > 10);
      CHECK(dark < 300);
      all.insert(p);
    }
  }
  CHECK(all.size() == 50);
  picture p{};
  CHECK_THROWS_AS(mlp::draw_digit(10, 0, p), std::invalid_argument);
}

TEST_CASE("written digits are read back as two IDX datasets", "[mlp]") {
  const test::temp_dir directory;
  const auto target = directory.path("digits");
  mlp::write_digits(target, 30, 20);
  mlp::write_digits(target, 30, 20);  // over the ones that are there
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(target)) {
    files += entry.is_regular_file() ? 1U : 0U;
  }
  CHECK(files == 4);  // no partial ones left

  const penstock::idx_dataset train{target + "/train-images-idx3-ubyte",
                                    target + "/train-labels-idx1-ubyte"};
  const penstock::idx_dataset test{target + "/t10k-images-idx3-ubyte",
                                   target + "/t10k-labels-idx1-ubyte"};
  CHECK(train.size() == 30);
  CHECK(test.size() == 20);
  std::set<int> labels;
  for (std::uint64_t i = 0; i < 30; ++i) labels.insert(penstock::get<"label">(train.view(i)));
  CHECK(labels.size() > 5);
  CHECK(*labels.rbegin() < 10);
  const auto image = penstock::get<"image">(train.view(4));
  picture expected{};
  mlp::draw_digit(penstock::get<"label">(train.view(4)), 4, expected);
  CHECK(std::equal(expected.begin(), expected.end(), image.data()));
}

TEST_CASE("a folder that can't be written is an error", "[mlp]") {
  CHECK_THROWS_AS(mlp::write_digits("/proc/no-such-folder", 1, 1), std::exception);
}
