// SPDX-License-Identifier: BSL-1.0
// Which bytes of Parquet files the system is asked to read ahead: its posix_fadvise is replaced in
// this program by one that writes down what it was asked for.
#include <penstock_ext/table/parquet/detail/parquet_groups.hpp>

#include <fcntl.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/order/block_shuffled.hpp>
#include <penstock_ext/table/parquet/parquet_blobs.hpp>
#include <penstock_ext/table/parquet/parquet_dataset.hpp>

#include "data/read_batch.hpp"
#include "ext/parquet/written.hpp"
#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

using asked_range = std::pair<std::uint64_t, std::uint64_t>;

// Tests run one after the other, their threads may call.
struct asked_log {
  std::mutex mutex;
  std::vector<asked_range> ranges;

  std::vector<asked_range> taken() {
    const std::lock_guard lock{mutex};
    return std::exchange(ranges, {});
  }
};

asked_log& asked() {
  static asked_log log;
  return log;
}

}  // namespace

extern "C" int posix_fadvise(int, ::off_t offset, ::off_t bytes,
                             int) noexcept(noexcept(::posix_fadvise(0, 0, 0, 0))) {
  const std::lock_guard lock{asked().mutex};
  asked().ranges.emplace_back(static_cast<std::uint64_t>(offset),
                              static_cast<std::uint64_t>(bytes));
  return 0;
}

namespace {

using labelled = ps::record<ps::field<"label", std::int64_t>, ps::field<"x", float>>;

// A column that nobody reads, between two that are read.
test::made_column three_columns(std::size_t rows) {
  return test::structs("", {test::numbers("x", "f", test::counted<float>(rows)),
                            test::strings("text", "u", std::vector<std::string>(rows, "text")),
                            test::numbers("label", "l", test::counted<std::int64_t>(rows))});
}

}  // namespace

TEST_CASE("the columns of row groups that come next are asked for, once until they are read",
          "[parquet][promise:bounded-12]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(40), 10);
  const ps::parquet_dataset<labelled> data{path};
  const ps::detail::parquet_file file{path};
  const auto of = [&](int group) {
    std::vector<asked_range> ranges;
    for (const auto& chunk : file.chunks(group, {2, 0})) {
      ranges.emplace_back(chunk.offset, chunk.bytes);
    }
    return ranges;
  };
  REQUIRE(of(2).size() == 2);
  CHECK(file.chunks(2, {0, 1, 2}).size() == 3);
  (void)asked().taken();
  const std::vector<std::uint64_t> rows{25, 29, 21, 40,
                                        (std::numeric_limits<std::uint64_t>::max)()};
  data.prefetch_hint(rows);
  CHECK(asked().taken() == of(2));
  data.prefetch_hint(rows);
  CHECK(asked().taken().empty());
  (void)test::read_batch(data, {20});
  data.prefetch_hint(rows);
  CHECK(asked().taken() == of(2));
  std::uint64_t bytes = 0;
  for (const auto& [offset, size] : of(2)) bytes += size;
  CHECK(data.storage_size(20) == (bytes + 9) / 10);
  CHECK(data.storage_size(40) == 0);
}

TEST_CASE("the row group of a blob that comes next is asked for, once until it is read",
          "[parquet][promise:bounded-12]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(40), 10);
  const ps::parquet_blobs texts{{path}, {.columns = {.blob = "text", .label = "label"}}};
  const ps::detail::parquet_file file{path};
  std::vector<asked_range> expected;
  for (const auto& chunk : file.chunks(1, {1, 2})) {
    expected.emplace_back(chunk.offset, chunk.bytes);
  }
  (void)asked().taken();
  for (int times = 0; times < 2; ++times) {
    for (const std::uint64_t row : {15U, 11U, 40U}) texts.prefetch(row);
    CHECK(asked().taken() == expected);
    CHECK(texts.label(12) == 12);
  }
  CHECK(texts.storage_size(12) == (expected[0].second + expected[1].second + 9) / 10);
  CHECK(texts.storage_size(40) == 0);
}

TEST_CASE("a loader that reads ahead asks for each row group before it is decoded",
          "[parquet][promise:bounded-12]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(80), 10);
  for (const std::size_t workers : {0U, 2U}) {
    const ps::parquet_dataset<labelled> data{path};
    (void)asked().taken();
    ps::loader loader{data,
                      ps::block_shuffled{.seed = 3, .block = data.block()},
                      {.batch_size = 8, .workers = workers, .ahead = {.bytes = 1 << 20}}};
    std::int64_t sum = 0;
    for (auto& batch : loader.epoch(0)) {
      for (std::size_t i = 0; i < batch.size(); ++i) sum += ps::get<"label">(batch)(i);
    }
    CHECK(sum == 79 * 80 / 2);
    CHECK(loader.stats().ahead.failed == 0);
    if (workers == 0) CHECK(asked().taken().size() >= 2 * 7);  // the first may be read by then
  }
}

TEST_CASE("a footer that names places outside of its file is asked for nothing there",
          "[parquet][promise:bounded-12]") {
  const test::temp_dir dir;
  const std::string path = test::written(dir.path("a.parquet"), three_columns(10), 10);
  const ps::detail::parquet_file before{path};
  const auto chunk = before.chunks(0, {0}).at(0);
  REQUIRE(test::with_footer(path, static_cast<std::int64_t>(chunk.bytes), 1'000'000'000) > 0);
  const ps::detail::parquet_file after{path};
  CHECK(after.chunks(0, {0}).empty());
}
