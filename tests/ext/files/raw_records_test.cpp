// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/raw_records.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "data/read_batch.hpp"
#include "ext/files/npy_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

using point = ps::record<ps::field<"class", std::uint8_t>, ps::field<"position", std::int32_t, 2>>;

// Returns records of nine bytes that consist of i and the numbers 10 i and 10 i + 1.
std::string points(std::size_t count, const std::string& before, const std::string& gap) {
  std::string bytes = before;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::int32_t>(10 * i);
    bytes += static_cast<char>(i);
    bytes += test::bytes_of(std::vector<std::int32_t>{first, first + 1}) + gap;
  }
  return bytes;
}

}  // namespace

TEST_CASE("records of equal length are read from a file after its header", "[data]") {
  const test::temp_dir dir;
  for (const auto& [header, gap] : {std::pair{0, 0}, {512, 0}, {3, 7}}) {
    const std::string path = test::write_file(
        dir.path("points.bin"), points(6, std::string(static_cast<std::size_t>(header), 'h'),
                                       std::string(static_cast<std::size_t>(gap), 'g')));
    const ps::raw_records<point> data{
        path,
        {.header = static_cast<std::uint64_t>(header), .gap = static_cast<std::uint64_t>(gap)}};
    REQUIRE(data.size() == 6);
    auto batch = test::read_batch(data, {5, 0, 2});
    CHECK(test::values<"class">(test::read_batch(data, {5, 0, 2})) ==
          std::vector<std::uint8_t>{5, 0, 2});
    CHECK(batch.get<"position">()(0, 1) == 51);
    CHECK(batch.get<"position">()(2, 0) == 20);
    CHECK(error_of<ps::index_error>([&] { test::read_batch(data, {6}); }).size() == 6);
    data.prefetch(6);
  }
}

TEST_CASE("the system prefetches announced records", "[data]") {
  const test::temp_dir dir;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  using row = ps::record<ps::field<"x", std::uint8_t, ps::dyn>>;
  const std::string path = test::write_file(dir.path("pages.bin"), std::string(64 * page, 'p'));
  const ps::raw_records<row> data{path, {{page}}};
  CHECK(data.storage_size(0) == page);
  const ps::mapped_file bytes{path};
  const auto is_there = [&](std::size_t number) {
    unsigned char found = 0;
    void* const first = const_cast<std::byte*>(bytes.bytes().data()) + number * page;
    REQUIRE(::mincore(first, page, &found) == 0);
    return (found & 1U) != 0;
  };
  const int file = ::open(path.c_str(), O_RDONLY);
  REQUIRE(file >= 0);
  ::fsync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
  const std::vector<std::uint64_t> some{40, 41, 3, 64, ~std::uint64_t{0}};
  if (is_there(40) || is_there(3)) {
    WARN("skipped: this file system keeps its pages");
    return data.prefetch_hint(some);
  }
  data.prefetch_hint(some);
  while (!is_there(3) || !is_there(40) || !is_there(41)) std::this_thread::yield();
}

TEST_CASE("records may have extents that are known at run time", "[data]") {
  const test::temp_dir dir;
  using row = ps::record<ps::field<"x", std::uint8_t, ps::dyn>>;
  const std::string path = test::write_file(dir.path("rows.bin"), "abcdef");
  const ps::raw_records<row> data{path, {{3}}};
  REQUIRE(data.size() == 2);
  CHECK(test::values<"x">(test::read_batch(data, {1})) == std::vector<std::uint8_t>{'d', 'e', 'f'});
  (void)error_of<ps::layout_error>([&] { ps::raw_records<row>(path, {{0}}); });
}

TEST_CASE("a file with a partial record is rejected", "[data]") {
  const test::temp_dir dir;
  const std::string path = test::write_file(dir.path("points.bin"), points(2, "", ""));
  const auto rest = error_of<ps::file_truncated>(
      [&] { ps::raw_records<point>(path, ps::raw_records_options{.header = 1}); });
  CHECK(rest.path() == path);
  CHECK(rest.offset() == 18);
  CHECK(rest.expected() == "records of 9 bytes after a header of 1");
  CHECK(rest.found() == "the end of the file, 8 bytes after the last whole record");
  const auto header = error_of<ps::file_truncated>(
      [&] { ps::raw_records<point>(path, ps::raw_records_options{.header = 19}); });
  CHECK(header.expected() == "a header of 19 bytes");
  CHECK(error_of<ps::file_truncated>([&] {
          ps::raw_records<point>(path, ps::raw_records_options{.header = 18});
        }).found() == "the end of the file, which has no record");
  CHECK(error_of<ps::file_truncated>([&] {
          ps::raw_records<point>(path, ps::raw_records_options{.gap = ~std::uint64_t{0}});
        }).offset() == 18);
  (void)error_of<ps::file_unreadable>([&] { ps::raw_records<point>{dir.path("none")}; });
}

TEST_CASE("records in a file of another format are rejected unless the check is off", "[data]") {
  const test::temp_dir dir;
  const std::string path = test::write_file(dir.path("x.bin"), points(2, "\x28\xb5\x2f\xfd", ""));
  for (const std::uint64_t header : {0U, 4U}) {  // the file ends after the zstd magic number
    const auto rejected = error_of<ps::file_format_error>(
        [&] { ps::raw_records<point>(path, ps::raw_records_options{.header = header}); });
    CHECK(rejected.path() == path);
    CHECK(rejected.expected() == "raw records");
    CHECK(rejected.found() ==
          "a zstd file: unpack it with unzstd or penstock::unpack_files, or open an IDX file with "
          "penstock::zstd; if this "
          "detection is wrong, set .check_format = false");
  }
  CHECK(ps::raw_records<point>{path, {.header = 4, .check_format = false}}.size() == 2);
}

TEST_CASE("a file without records is rejected, and bytes become one of bool's two values",
          "[data]") {
  const test::temp_dir dir;
  using flag = ps::record<ps::field<"on", bool>>;
  CHECK(error_of<ps::file_truncated>([&] {
          ps::raw_records<point>{test::write_file(dir.path("empty.bin"), "")};
        }).path() == dir.path("empty.bin"));
  const std::string bytes{'\0', '\1', '\2', static_cast<char>(255)};
  const ps::raw_records<flag> flags{test::write_file(dir.path("flags.bin"), bytes)};
  auto batch = test::read_batch(flags, {0, 1, 2, 3});
  const auto* raw = reinterpret_cast<const unsigned char*>(batch.get<"on">().data());
  CHECK(std::vector<int>(raw, raw + 4) == std::vector<int>{0, 1, 1, 1});
}
