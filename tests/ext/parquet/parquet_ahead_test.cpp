// SPDX-License-Identifier: BSL-1.0
// Tests which byte ranges of Parquet files are requested from the system, either in advance or
// directly before they are decoded. The program replaces posix_fadvise and pread with versions that
// record their arguments.
#include <penstock_ext/table/parquet/detail/parquet_file.hpp>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>
#include <penstock_ext/table/parquet/parquet_blobs.hpp>
#include <penstock_ext/table/parquet/parquet_dataset.hpp>

#include "data/read_batch.hpp"
#include "ext/parquet/written.hpp"
#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

using requested_range = std::pair<std::uint64_t, std::uint64_t>;

// The recorded ranges. Tests run one after another, but the threads of a test may call
// concurrently.
struct request_log {
  std::mutex mutex;
  std::vector<requested_range> ranges;

  std::vector<requested_range> taken() {
    const std::lock_guard lock{mutex};
    return std::exchange(ranges, {});
  }
};

request_log& requested() {
  static request_log log;
  return log;
}

request_log& read_now() {
  static request_log log;
  return log;
}

}  // namespace

extern "C" int posix_fadvise(int, ::off_t offset, ::off_t bytes,
                             int) noexcept(noexcept(::posix_fadvise(0, 0, 0, 0))) {
  const std::lock_guard lock{requested().mutex};
  requested().ranges.emplace_back(static_cast<std::uint64_t>(offset),
                                  static_cast<std::uint64_t>(bytes));
  return 0;
}

extern "C" ::ssize_t pread(int file, void* out, std::size_t bytes, ::off_t offset) {
  {
    const std::lock_guard lock{read_now().mutex};
    read_now().ranges.emplace_back(static_cast<std::uint64_t>(offset), bytes);
  }
  return ::syscall(SYS_pread64, file, out, bytes, offset);
}

namespace {

using labelled = ps::record<ps::field<"label", std::int64_t>, ps::field<"x", float>>;

// Returns the range from the start of the first chunk to the end of the second chunk.
requested_range one_range(const std::vector<ps::detail::parquet_chunk>& chunks) {
  return {chunks[0].offset, chunks[1].offset + chunks[1].bytes - chunks[0].offset};
}

bool has_direct_reads(const std::string& path) {
  return ps::detail::open_at(AT_FDCWD, path.c_str(), O_DIRECT).get() >= 0;
}

// Returns three columns, of which the tests read the first and the last.
test::made_column three_columns(std::size_t rows) {
  return test::structs("", {test::numbers("x", "f", test::counted<float>(rows)),
                            test::strings("text", "u", std::vector<std::string>(rows, "text")),
                            test::numbers("label", "l", test::counted<std::int64_t>(rows))});
}

}  // namespace

TEST_CASE("the columns of upcoming row groups are requested once until they are read",
          "[parquet][promise:bounded-12]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(40), 10);
  const ps::parquet_dataset<labelled> data{path};
  const ps::detail::parquet_file file{path};
  const auto chunks = file.chunks(2, {0, 2});
  REQUIRE(chunks.size() == 2);
  CHECK(file.chunks(2, {0, 1, 2}).size() == 3);
  const std::vector<requested_range> both{one_range(chunks)};
  (void)requested().taken();
  const std::vector<std::uint64_t> rows{25, 29, 21, 40,
                                        (std::numeric_limits<std::uint64_t>::max)()};
  data.prefetch_hint(rows);
  CHECK(requested().taken() == both);
  data.prefetch_hint(rows);
  CHECK(requested().taken().empty());
  (void)test::read_batch(data, {20});
  data.prefetch_hint(rows);
  CHECK(requested().taken() == both);
  std::uint64_t bytes = 0;
  for (const auto& chunk : chunks) bytes += chunk.bytes;
  CHECK(data.storage_size(20) == (bytes + 9) / 10);
  CHECK(data.storage_size(40) == 0);
}

TEST_CASE("the row group of an upcoming blob is requested once until it is read",
          "[parquet][promise:bounded-12]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(40), 10);
  const ps::parquet_blobs texts{{path}, {.columns = {.blob = "text", .label = "label"}}};
  const ps::detail::parquet_file file{path};
  const auto chunks = file.chunks(1, {1, 2});
  const std::vector<requested_range> expected{one_range(chunks)};
  (void)requested().taken();
  for (int times = 0; times < 2; ++times) {
    for (const std::uint64_t row : {15U, 11U, 40U}) texts.prefetch(row);
    CHECK(requested().taken() == expected);
    CHECK(texts.label(12) == 12);
  }
  CHECK(texts.storage_size(12) == (chunks[0].bytes + chunks[1].bytes + 9) / 10);
  CHECK(texts.storage_size(40) == 0);
}

TEST_CASE("a loader with lookahead requests each row group before it is decoded",
          "[parquet][promise:bounded-12]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(80), 10);
  for (const std::size_t workers : {0U, 2U}) {
    const ps::parquet_dataset<labelled> data{path};
    (void)requested().taken();
    ps::loader loader{data,
                      ps::block_shuffled{.seed = 3, .block = data.block()},
                      {.batch_size = 8, .workers = workers, .lookahead_bytes = 1 << 20}};
    std::int64_t sum = 0;
    for (auto& batch : loader.epoch(0)) {
      for (std::size_t i = 0; i < batch.size(); ++i) sum += ps::get<"label">(batch)(i);
    }
    CHECK(sum == 79 * 80 / 2);
    CHECK(loader.stats().ahead.failed == 0);
    if (workers == 0)
      CHECK(requested().taken().size() >= 7);  // workers may read some row groups first
  }
}

TEST_CASE("a footer with offsets outside its file causes no requests there",
          "[parquet][promise:bounded-12]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(10), 10);
  const ps::detail::parquet_file before{path};
  const auto chunk = before.chunks(0, {0}).at(0);
  REQUIRE(test::with_footer(path, static_cast<std::int64_t>(chunk.bytes), 1'000'000'000) > 0);
  const ps::detail::parquet_file after{path};
  CHECK(after.chunks(0, {0}).empty());
}

TEST_CASE("adjacent columns of a row group are read in one call", "[parquet]") {
  const test::temp_dir dir;
  const auto reads = [&](const std::string& path, std::uint64_t row) {
    const ps::parquet_dataset<labelled> data{path};
    (void)read_now().taken();
    auto batch = test::read_batch(data, {row, row + 1});
    CHECK(test::values<"label">(batch) ==
          std::vector{static_cast<std::int64_t>(row), static_cast<std::int64_t>(row + 1)});
    CHECK(batch.get<"x">()(1) == static_cast<float>(row + 1));
    return read_now().taken();
  };
  const std::string near = test::written(dir.path("near.parquet"), three_columns(40), 10);
  const auto whole = ps::detail::parquet_file{near}.chunks(2, {0, 2});
  CHECK(reads(near, 23) == std::vector{one_range(whole)});
  // A gap of at least 16 KiB between two required columns is not read.
  const auto apart = test::structs(
      "", {test::numbers("x", "f", test::counted<float>(4)),
           test::strings("text", "u", std::vector<std::string>(4, std::string(1U << 15U, 'a'))),
           test::numbers("label", "l", test::counted<std::int64_t>(4))});
  const auto plain = parquet::WriterProperties::Builder{}.disable_dictionary()->build();
  const std::string far = test::written(dir.path("far.parquet"), apart, 4, plain);
  std::vector<requested_range> each;
  for (const auto& chunk : ps::detail::parquet_file{far}.chunks(0, {0, 2})) {
    each.emplace_back(chunk.offset, chunk.bytes);
  }
  CHECK(reads(far, 1) == each);
}

TEST_CASE("row groups bypass the page cache if requested, without prefetching", "[parquet]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(40), 10);
  const std::string link = dir.path("link.parquet");
  std::filesystem::create_symlink(path, link);
  const ps::parquet_dataset<labelled> data{link, {.direct = true}};
  const ps::parquet_blobs texts{{link},
                                {.columns = {.blob = "text", .label = "label"}, .direct = true}};
  (void)read_now().taken();
  (void)requested().taken();
  const std::vector<std::uint64_t> rows{29, 21, 3};
  data.prefetch_hint(rows);
  texts.prefetch(35);
  auto batch = test::read_batch(data, rows);
  CHECK(test::values<"label">(batch) == std::vector<std::int64_t>{29, 21, 3});
  CHECK(batch.get<"x">()(1) == 21);
  CHECK(texts.label(35) == 35);
  if (has_direct_reads(path)) {
    const auto reads = read_now().taken();
    CHECK(reads.size() == 3);  // two row groups, and one group of the blobs
    for (const auto& [offset, bytes] : reads) CHECK((offset % 4096 == 0 && bytes % 4096 == 0));
    CHECK(requested().taken().empty());
  } else {
    WARN("no direct reads in the folder for temporary files");
  }

  // The link now leads to another file, but the dataset still reads the open file.
  std::filesystem::rename(test::written(dir.path("b.parquet"), three_columns(40), 10), path);
  CHECK(test::values<"label">(test::read_batch(data, {15})) == std::vector<std::int64_t>{15});
  std::filesystem::resize_file(path, 40);
  CHECK_THROWS_AS(test::read_batch(ps::parquet_dataset<labelled>{link, {.direct = true}}, {0}),
                  ps::file_corrupt);
}

TEST_CASE("pages of a Parquet file that are larger than the memory of direct reads are read by it",
          "[parquet]") {
  const test::temp_dir dir;
  const std::size_t rows = 3'000'000;  // 24 MB of values
  const auto plain = parquet::WriterProperties::Builder{}.disable_dictionary()->build();
  const std::string path =
      test::written(dir.path("a.parquet"),
                    test::structs("", {test::numbers("n", "l", test::counted<std::int64_t>(rows))}),
                    static_cast<std::int64_t>(rows), plain);
  const ps::parquet_dataset<ps::record<ps::field<"n", std::int64_t>>> data{path, {.direct = true}};
  const std::vector<std::uint64_t> some{0, 1'048'575, 1'048'576, 2'097'152, rows - 1};
  (void)read_now().taken();
  CHECK(test::values<"n">(test::read_batch(data, some)) ==
        std::vector<std::int64_t>{0, 1'048'575, 1'048'576, 2'097'152, rows - 1});
  const auto reads = read_now().taken();
  CHECK(reads.size() >= 3);
  for (const auto& [offset, bytes] : reads) CHECK(bytes <= (std::size_t{8} << 20));
}

TEST_CASE("a Parquet file that changes during a direct read is rejected", "[parquet]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(40), 10);
  const ps::parquet_dataset<labelled> data{path, {.direct = true}};
  std::filesystem::resize_file(path, 40);
  CHECK_THROWS_AS(test::read_batch(data, {15}), ps::file_changed);
}

TEST_CASE("only the members of a struct that are fields or blobs are read", "[parquet]") {
  const test::temp_dir dir;
  const auto sizes = [](const char* name, std::size_t first) {
    return test::numbers(name, "i", test::counted<std::int32_t>(4, first));
  };
  const auto table = test::structs(
      "",
      {test::structs(
          "image",
          {sizes("height", 100),
           test::strings("bytes", "z", std::vector<std::string>(4, std::string(1U << 16U, 'a'))),
           test::structs(
               "about", {test::strings("key", "u", {"p", "q", "r", "s"}), sizes("width", 200)})})});
  const auto plain = parquet::WriterProperties::Builder{}.disable_dictionary()->build();
  const std::string path = test::written(dir.path("a.parquet"), table, 4, plain);
  const auto chunks = ps::detail::parquet_file{path}.chunks(0, {0, 1, 2, 3});
  REQUIRE(chunks.size() == 4);
  const auto bytes_now = [&] {
    std::uint64_t bytes = 0;
    for (const auto& [offset, size] : read_now().taken()) bytes += size;
    return bytes;
  };

  using size_of_image = ps::record<ps::field<"image.about.width", std::int32_t>,
                                   ps::field<"image.height", std::int32_t>>;
  const ps::parquet_dataset<size_of_image> data{path};
  CHECK(data.storage_size(0) == (chunks[0].bytes + chunks[3].bytes + 3) / 4);
  (void)requested().taken();
  (void)read_now().taken();
  data.prefetch_hint(std::vector<std::uint64_t>{1});
  CHECK(requested().taken() == std::vector{requested_range{chunks[0].offset, chunks[0].bytes},
                                           requested_range{chunks[3].offset, chunks[3].bytes}});
  auto batch = test::read_batch(data, {3, 0});
  CHECK(bytes_now() == chunks[0].bytes + chunks[3].bytes);
  CHECK(test::values<"image.about.width">(batch) == std::vector<std::int32_t>{203, 200});
  CHECK(test::values<"image.height">(batch) == std::vector<std::int32_t>{103, 100});

  const ps::parquet_blobs keys{{path}, {.columns = {.blob = "image.about.key"}}};
  (void)read_now().taken();
  ps::blob_buffer buffer;
  CHECK(keys.bytes(2, buffer)[0] == std::byte{'r'});
  CHECK(bytes_now() == chunks[2].bytes);
}
