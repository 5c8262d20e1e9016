// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/table/parquet/parquet_blobs.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ext/parquet/written.hpp"
#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::made_column;
using test::written;

namespace {

made_column images(std::size_t rows, std::size_t first) {
  std::vector<std::string> bytes;
  std::vector<std::string> paths;
  for (std::size_t i = first; i < first + rows; ++i) {
    bytes.push_back(std::string(i, 'a') + "!");
    paths.push_back(std::to_string(i) + ".jpg");
  }
  return test::structs("", {test::structs("image", {test::strings("bytes", "z", bytes),
                                                    test::strings("path", "u", paths)}),
                            test::numbers("label", "s", test::counted<std::int16_t>(rows, first))});
}

const ps::arrow_blobs_options names{.blob = "image.bytes", .label = "label", .key = "image.path"};

std::string blob_of(const ps::parquet_blobs& source, std::uint64_t index) {
  ps::blob_buffer buffer;
  const auto bytes = source.bytes(index, buffer);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("images in a column of Parquet files are blobs with labels and keys",
          "[parquet][promise:race-free-10]") {
  const test::temp_dir dir;
  const std::string second = written(dir.path("b.parquet"), images(4, 7), 3);
  const ps::parquet_blobs source{{written(dir.path("a.parquet"), images(7, 0), 3), second},
                                 {.columns = names}};
  REQUIRE(source.size() == 11);
  CHECK(source.block() == 3);
  for (const std::uint64_t index : {10U, 0U, 6U, 7U}) {
    CHECK(blob_of(source, index) == std::string(index, 'a') + "!");
    CHECK(source.label(index) == static_cast<std::int64_t>(index));
    CHECK(source.key(index) == std::to_string(index) + ".jpg");
  }
  CHECK(source.decoded() == 4);
  CHECK(error_of<ps::index_error>([&] { blob_of(source, 11); }).size() == 11);
  const ps::parquet_blobs plain{{second}, {.columns = {.blob = "image.bytes"}}};
  CHECK(plain.key(3) == second + ", row 3");
  CHECK(plain.label(3) == 0);
  CHECK(error_of<ps::index_error>([&] { (void)plain.key(4); }).index() == 4);
}

TEST_CASE("a label of a cached row group is found without allocation", "[parquet]") {
  const test::temp_dir dir;
  const ps::parquet_blobs source{{written(dir.path("a.parquet"), images(4, 0), 2)},
                                 {.columns = names}};
  CHECK(source.label(3) == 3);
  const std::size_t before = test::allocations;
  std::int64_t sum = 0;
  for (int i = 0; i < 10; ++i) sum += source.label(2);
  const std::size_t taken = test::allocations - before;
  CHECK(sum == 20);
  CHECK(taken == 0);
}

TEST_CASE("blobs of an evicted row group are read again", "[parquet][promise:race-free-10]") {
  const test::temp_dir dir;
  const std::string path = written(dir.path("a.parquet"), images(4, 0), 2);
  ps::parquet_blobs_options options{.columns = {.blob = "image.bytes"}, .cache_bytes = 1};
  const auto problem = error_of<ps::option_error>([&] { ps::parquet_blobs{{path}, options}; });
  CHECK(problem.option() == "cache_bytes");
  const std::string said = problem.what();
  const std::uint64_t needed = std::stoull(said.substr(said.find_first_of("0123456789")));
  options.cache_bytes = needed + needed / 2;  // enough for one row group but not for two
  const ps::parquet_blobs source{{path}, options};
  ps::blob_buffer buffer;
  const auto first = source.bytes(1, buffer);
  CHECK(blob_of(source, 3) == "aaa!");
  CHECK(first.size() == 2);
  CHECK(first[0] == std::byte{'a'});  // still valid, although its row group was evicted
  CHECK(blob_of(source, 0) == "!");
  CHECK(source.decoded() == 3);
}

TEST_CASE("blobs of a Parquet file that are null or of another type are rejected by name",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  made_column table = images(6, 0);
  table.children[1] = test::with_nulls(table.children[1], "111101");
  const std::string path = written(dir.path("a.parquet"), table, 3);
  const ps::parquet_blobs source{{path}, {.columns = names}};
  CHECK(source.label(2) == 2);
  const auto problem = error_of<ps::null_in_column>([&] { (void)source.label(3); });
  CHECK(problem.row() == 4);
  CHECK(problem.where() == path);
  CHECK(error_of<ps::column_type_mismatch>([&] {
          ps::parquet_blobs{{path}, {.columns = {.blob = "label"}}};
        }).where() == path);
  CHECK(error_of<ps::missing_column>([&] {
          ps::parquet_blobs{{path}, {.columns = {.blob = "image.bytes", .key = "name"}}};
        }).column() == "name");
  CHECK(error_of<ps::option_error>([&] { ps::parquet_blobs{{path}, {}}; }).option() == "blob");
}
