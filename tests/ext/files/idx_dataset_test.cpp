// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/idx_dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "data/read_batch.hpp"
#include "ext/files/idx_bytes.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::idx_bytes;

namespace {

using small = ps::record<ps::field<"image", std::uint8_t, 2, 3>, ps::field<"label", std::uint8_t>>;

}  // namespace

TEST_CASE("an IDX dataset reads images and labels", "[data]") {
  const test::temp_dir dir;
  const std::string images = dir.write("images", idx_bytes(u8, {4, 2, 3}, counted(24)));
  const std::string labels = dir.write("labels", idx_bytes(u8, {4}, {9, 8, 7, 6}));
  const ps::idx_dataset<small> data{images, labels};
  CHECK(ps::dataset<ps::idx_dataset<small>>);
  CHECK(data.size() == 4);
  auto batch = test::read_batch(data, {3, 0});
  CHECK(ps::get<"image">(batch.view()[0])(0, 1) == 19);
  CHECK(ps::get<"image">(batch.view()[1])(1, 2) == 5);
  CHECK(ps::get<"label">(batch.view()[0]) == 6);
  CHECK(ps::get<"label">(data.view(1)) == 8);
  CHECK_THROWS_AS(data.view(4), ps::index_error);
}

TEST_CASE("MNIST's record is the default", "[data]") {
  const test::temp_dir dir;
  const std::string images = dir.write("images", idx_bytes(u8, {2, 28, 28}, counted(1568)));
  const std::string labels = dir.write("labels", idx_bytes(u8, {2}, {9, 8}));
  const ps::idx_dataset digits{images, std::filesystem::path{labels}};
  CHECK(std::is_same_v<decltype(digits)::record_type, ps::digit_record>);
  CHECK(ps::get<"image">(digits.view(1))(0, 0) == static_cast<std::uint8_t>(784));
}

TEST_CASE("a moved IDX dataset keeps its samples", "[data]") {
  const test::temp_dir dir;
  ps::idx_dataset<small> data{dir.write("images", idx_bytes(u8, {1, 2, 3}, counted(6))),
                              dir.write("labels", idx_bytes(u8, {1}, {9}))};
  const ps::idx_dataset<small> moved{std::move(data)};
  CHECK(ps::get<"image">(moved.view(0))(1, 2) == 5);
  CHECK_FALSE(std::is_copy_constructible_v<ps::idx_dataset<small>>);
}

TEST_CASE("dynamic extents come from the file", "[data]") {
  using vectors = ps::record<ps::field<"x", std::int16_t, 2, ps::dyn>>;
  const test::temp_dir dir;
  const ps::idx_dataset<vectors> data{dir.write("x", idx_bytes(i16, {2, 2, 3}, counted(24)))};
  CHECK(data.extents().at<0>()[0] == 2);
  CHECK(data.extents().at<0>()[1] == 3);
  CHECK(test::values<"x">(test::read_batch(data, {1})) ==
        std::vector<std::int16_t>{0x0c0d, 0x0e0f, 0x1011, 0x1213, 0x1415, 0x1617});
  const std::string flat = dir.write("flat", idx_bytes(i16, {2, 2, 0}, {}));
  const auto problem =
      error_of<ps::dimension_mismatch>([&] { ps::idx_dataset<vectors> rejected{flat}; });
  CHECK(problem.offset() == 12);
  CHECK(problem.expected() == "1 or more in dimension 2 for field \"x\"");
}

TEST_CASE("files that do not fit the record or each other are rejected", "[data][fault:files-2]") {
  const test::temp_dir dir;
  const std::string images = dir.write("images", idx_bytes(u8, {4, 2, 3}, counted(24)));
  const std::string labels = dir.write("labels", idx_bytes(u8, {4}, {9, 8, 7, 6}));
  const auto open = [&](const test::file_bytes& bytes) {
    return
        [&labels, path = dir.write("other", bytes)] { ps::idx_dataset<small> data{path, labels}; };
  };
  SECTION("element type") {
    const auto problem = error_of<ps::element_type_mismatch>(open(idx_bytes(i8, {4, 2, 3}, {})));
    CHECK(problem.path() == dir.path("other"));
    CHECK(problem.offset() == 2);
  }
  SECTION("number of dimensions") {
    const auto problem = error_of<ps::dimension_mismatch>(open(idx_bytes(u8, {4, 6}, {})));
    CHECK(problem.offset() == 3);
    CHECK(problem.expected() == "3 dimensions for field \"image\"");
    CHECK(problem.found() == "2");
    CHECK(error_of<ps::dimension_mismatch>(open(idx_bytes(u8, {4, 2, 3, 1}, {}))).offset() == 3);
  }
  SECTION("length of a dimension") {
    const auto problem = error_of<ps::dimension_mismatch>(open(idx_bytes(u8, {4, 2, 4}, {})));
    CHECK(problem.offset() == 12);
    CHECK(problem.expected() == "3 in dimension 2 for field \"image\"");
    CHECK(problem.found() == "4");
  }
  SECTION("number of samples") {
    const std::string other = dir.write("other", idx_bytes(u8, {5}, counted(5)));
    const auto problem =
        error_of<ps::length_mismatch>([&] { ps::idx_dataset<small> data{images, other}; });
    CHECK(problem.path() == other);
    CHECK(problem.offset() == 4);
    CHECK(problem.expected() == "4 samples as in " + images);
    CHECK(problem.found() == "5");
  }
  SECTION("a missing file") {
    const auto problem = error_of<ps::file_unreadable>(
        [&] { ps::idx_dataset<small> data{images, dir.path("missing")}; });
    CHECK(problem.path() == dir.path("missing"));
  }
}

TEST_CASE("an IDX dataset may have no samples", "[data]") {
  const test::temp_dir dir;
  const ps::idx_dataset<small> data{dir.write("images", idx_bytes(u8, {0, 2, 3}, {})),
                                    dir.write("labels", idx_bytes(u8, {0}, {}))};
  CHECK(data.size() == 0);
}

TEST_CASE("the real MNIST is read from plain files, where it is present", "[data]") {
  const char* dir = std::getenv("MNIST_DIR");
  const std::string folder = dir == nullptr ? "" : dir;
  const std::string labels = folder + "/t10k-labels-idx1-ubyte";
  if (!std::filesystem::exists(labels)) {
    WARN("no unpacked MNIST in MNIST_DIR: not tried");
    return;
  }
  const ps::idx_dataset digits{folder + "/t10k-images-idx3-ubyte", labels};
  CHECK(digits.size() == 10'000);
  CHECK(ps::get<"label">(digits.view(0)) == 7);
}
