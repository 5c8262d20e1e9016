// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/cifar_dataset.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/read_batch.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

constexpr std::size_t image_bytes = 3072;

// Returns rows with these labels. Byte k of all images in the file is k modulo 251.
test::file_bytes rows(const std::vector<test::file_bytes>& labels) {
  test::file_bytes bytes;
  std::size_t pixel = 0;
  for (const test::file_bytes& row : labels) {
    bytes.insert(bytes.end(), row.begin(), row.end());
    for (std::size_t i = 0; i < image_bytes; ++i, ++pixel) {
      bytes.push_back(static_cast<std::uint8_t>(pixel % 251));
    }
  }
  return bytes;
}

// Returns the exception of type E that opening the file as a dataset throws.
template <class E, class Record = ps::cifar10_record>
E cifar_error(const test::temp_dir& dir, const test::file_bytes& bytes) {
  const std::string path = dir.write("bad.bin", bytes);
  const E problem = test::error_of<E>([&] { const ps::cifar_dataset<Record> data{path}; });
  CHECK(problem.path() == path);
  return problem;
}

}  // namespace

TEST_CASE("CIFAR-10 is read from its files, one after the other", "[data]") {
  const test::temp_dir dir;
  const std::string first = dir.write("1.bin", rows({{3}, {9}}));
  const std::string second = dir.write("2.bin", rows({{0}}));
  ps::cifar_dataset data{first, std::filesystem::path{second}};
  CHECK(std::is_same_v<decltype(data)::record_type, ps::cifar10_record>);
  CHECK(data.size() == 3);
  const auto check = [](const auto& from) {
    auto batch = test::read_batch(from, {1, 2, 0, 2});
    CHECK(test::values<"label">(test::read_batch(from, {1, 2, 0, 2})) ==
          std::vector<std::uint8_t>{9, 0, 3, 0});
    const auto image = ps::get<"image">(batch.view()[0]);
    CHECK(image(0, 0, 0) == image_bytes % 251);
    CHECK(image(1, 0, 0) == (image_bytes + 1024) % 251);
    CHECK(image(2, 31, 31) == (2 * image_bytes - 1) % 251);
    CHECK(ps::get<"image">(batch.view()[3])(2, 31, 31) == (image_bytes - 1) % 251);
    CHECK(ps::get<"image">(from.view(2))(0, 1, 2) == 34);
  };
  check(data);
  CHECK_THROWS_AS(data.view(3), ps::index_error);
  CHECK_THROWS_AS(test::read_batch(data, {0, 3}), ps::index_error);
  const ps::cifar_dataset<> moved{std::move(data)};
  check(moved);
  check(ps::cifar_dataset<>{std::vector<std::string>{first, second}});
  CHECK(ps::cifar_dataset<>{std::vector<std::string>{}}.size() == 0);
  CHECK_FALSE(std::is_copy_constructible_v<ps::cifar_dataset<>>);
}

TEST_CASE("CIFAR-100 has two labels", "[data]") {
  const test::temp_dir dir;
  const ps::cifar_dataset<ps::cifar100_record> data{
      dir.write("train.bin", rows({{19, 99}, {4, 7}}))};
  CHECK(data.size() == 2);
  CHECK(test::values<"coarse_label">(test::read_batch(data, {0, 1})) ==
        std::vector<std::uint8_t>{19, 4});
  CHECK(test::values<"label">(test::read_batch(data, {0, 1})) == std::vector<std::uint8_t>{99, 7});
  CHECK(ps::get<"image">(data.view(0))(0, 0, 1) == 1);
  CHECK(ps::get<"image">(data.view(1))(0, 0, 0) == image_bytes % 251);
}

TEST_CASE("a CIFAR file with a partial row is rejected", "[data]") {
  const test::temp_dir dir;
  auto bytes = rows({{3}, {4}});
  bytes.pop_back();
  const auto shorter = cifar_error<ps::file_truncated>(dir, bytes);
  CHECK(shorter.offset() == 6145);
  CHECK(shorter.expected() == "the end of a row of 3073 bytes");
  CHECK(shorter.found() == "the end of the file, 3072 bytes after the last whole row");
  bytes.resize(3074);
  CHECK(cifar_error<ps::file_truncated>(dir, bytes).offset() == 3074);
  CHECK(cifar_error<ps::file_truncated>(dir, {}).found() == "the end of the file, which is empty");
  CHECK(cifar_error<ps::file_truncated, ps::cifar100_record>(dir, rows({{1}, {2}})).expected() ==
        "the end of a row of 3074 bytes");
}

TEST_CASE("a CIFAR file that is named twice is rejected, under any name", "[data][fault:files-4]") {
  const test::temp_dir dir;
  const std::string first = dir.write("first", rows({{1}, {2}}));
  const std::string second =
      dir.write("second", rows({{1}, {2}}));  // files with equal contents do not count as repeated
  CHECK(ps::cifar_dataset<>{first, second}.size() == 4);
  const std::string link = dir.path("link");
  std::filesystem::create_symlink(first, link);
  for (const std::string& again : {first, link, dir.path("./first")}) {
    const auto twice = test::error_of<ps::duplicate_entry>(
        [&] { static_cast<void>(ps::cifar_dataset<>{first, second, again}); });
    CHECK(twice.path() == again);
    CHECK(twice.first_path() == first);
  }
}

TEST_CASE("a label without a class is rejected", "[data]") {
  const test::temp_dir dir;
  const auto ten = cifar_error<ps::file_format_error>(dir, rows({{9}, {10}}));
  CHECK(ten.offset() == 3073);
  CHECK(ten.expected() == "a label below 10");
  CHECK(ten.found() == "10");
  const auto coarse =
      cifar_error<ps::file_format_error, ps::cifar100_record>(dir, rows({{19, 99}, {20, 0}}));
  CHECK(coarse.offset() == 3074);
  CHECK(coarse.expected() == "a coarse label below 20");
  const auto fine = cifar_error<ps::file_format_error, ps::cifar100_record>(dir, rows({{0, 100}}));
  CHECK(fine.offset() == 1);
  CHECK(fine.expected() == "a label below 100");
}

TEST_CASE("a file of another format in place of a CIFAR file is named", "[data]") {
  const test::temp_dir dir;
  const auto found = [&](const test::file_bytes& bytes) {
    return cifar_error<ps::file_format_error>(dir, bytes).found();
  };
  const auto starts = [](const std::string& text) { return Catch::Matchers::StartsWith(text); };
  CHECK_THAT(found({0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2}), starts("a gzip file"));
  test::file_bytes tar(512, 0);
  const std::string magic = "ustar";
  std::copy(magic.begin(), magic.end(), tar.begin() + 257);
  CHECK_THAT(found(tar), starts("a tar file"));
  tar.resize(261);
  CHECK_THAT(cifar_error<ps::file_truncated>(dir, tar).found(),
             Catch::Matchers::EndsWith("last whole row"));
  CHECK_THAT(found({0x80, 0x02, '}', 'q', 1, 0, 0, 0, 0, 0, 'u', '.'}), starts("a Python pickle"));
  auto row = rows({{3}});
  std::copy(magic.begin(), magic.end(), row.begin() + 257);
  CHECK(ps::cifar_dataset<>{dir.write("row.bin", row)}.size() == 1);  // pixels may have any value
  row.front() = 10;
  CHECK_THAT(found(row), starts("a tar file"));
  CHECK_THROWS_AS(ps::cifar_dataset<>{dir.path("missing")}, ps::file_unreadable);
}
