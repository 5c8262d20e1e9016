// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/table/parquet/parquet_dataset.hpp>

#include <arrow/memory_pool.h>
#include <arrow/util/compression.h>
#include <parquet/properties.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>
#include <penstock_ext/table/parquet/parquet_blobs.hpp>

#include "data/read_batch.hpp"
#include "ext/parquet/written.hpp"
#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::counted;
using test::error_of;
using test::made_column;
using test::read_batch;
using test::written;

namespace {

using point = ps::record<ps::field<"label", std::int64_t>, ps::field<"x", float, ps::dyn>,
                         ps::field<"hash", std::uint8_t, 4>>;

/// Returns rows of 44 bytes. The hash follows the struct of the label, so the indices of columns
/// and leaves differ.
made_column points(std::size_t rows, std::size_t first) {
  made_column hash = test::numbers("hash", "w:4", counted<std::int32_t>(rows, first));
  return test::structs(
      "", {test::structs("meta", {test::strings("path", "u", std::vector<std::string>(rows, "p")),
                                  test::numbers("n", "i", counted<std::int32_t>(rows))}),
           hash, test::numbers("label", "l", counted<std::int64_t>(rows, first)),
           test::fixed_lists("x", 8, test::numbers("", "f", counted<float>(8 * rows, 8 * first)))});
}

}  // namespace

TEST_CASE("the rows of Parquet files are samples, numbered through", "[parquet]") {
  const test::temp_dir dir;
  const ps::parquet_dataset<point> data{{written(dir.path("a.parquet"), points(10, 0), 4),
                                         written(dir.path("b.parquet"), points(5, 10), 4)}};
  REQUIRE(data.size() == 15);
  CHECK(data.row_groups() == 5);
  CHECK(data.block() == 4);
  CHECK(data.extents().at<1>()[0] == 8);
  auto batch = read_batch(data, {14, 0, 9, 10, 3});
  CHECK(test::values<"label">(batch) == std::vector<std::int64_t>{14, 0, 9, 10, 3});
  CHECK(batch.get<"x">()(2, 7) == 79.0F);
  CHECK(batch.get<"hash">()(3, 0) == 10);
  CHECK(data.decoded() == 4);
  CHECK(data.held_bytes() == (1 + 4 + 2 + 4) * 44);
  CHECK(data.warnings().empty());
  CHECK(error_of<ps::index_error>([&] { read_batch(data, {15}); }).size() == 15);
  const std::string none = written(dir.path("none.parquet"), points(0, 0), 4);
  const ps::parquet_dataset<point> empty{
      {none, written(dir.path("none_either.parquet"), points(0, 0), 4)}};
  REQUIRE(empty.warnings().size() == 1);
  CHECK(test::has(empty.warnings()[0], none + " and the files after it: no rows in "));
}

TEST_CASE("batches of Parquet files are the same for any workers, each row group decoded once",
          "[parquet][promise:race-free-10]") {
  const test::temp_dir dir;
  const std::string path = written(dir.path("a.parquet"), points(200, 0), 32);
  std::vector<std::vector<std::int64_t>> orders;
  for (const std::size_t workers : {0U, 3U}) {
    const ps::parquet_dataset<point> data{path, {.cache_bytes = 5 * 32 * 44}};
    ps::loader loader{data,
                      ps::block_shuffled{.seed = 5, .block = data.block()},
                      {.batch_size = 10, .workers = workers, .prefetch = 2}};
    auto& order = orders.emplace_back();
    for (auto& batch : loader.epoch(0)) {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        order.push_back(ps::get<"label">(batch)(i));
        CHECK(ps::get<"x">(batch)(i, 3) == static_cast<float>(8 * order.back() + 3));
      }
    }
    CHECK(data.decoded() == 7);
    CHECK(data.held_bytes() <= 5 * 32 * 44);
  }
  CHECK(orders[0].size() == 200);
  CHECK(orders[0] == orders[1]);
}

TEST_CASE("row groups beyond the cache's bytes are decoded again",
          "[parquet][promise:race-free-10]") {
  const test::temp_dir dir;
  const std::string path = written(dir.path("a.parquet"), points(8, 0), 4);
  const ps::parquet_dataset<point> data{path, {.cache_bytes = 4 * 44}};
  const auto copy = data;
  CHECK(test::values<"label">(read_batch(copy, {0, 4, 1})) == std::vector<std::int64_t>{0, 4, 1});
  CHECK(data.decoded() == 3);
  CHECK(data.held_bytes() == 4 * 44);
  const auto problem = error_of<ps::option_error>(
      [&] { ps::parquet_dataset<point>{path, {.cache_bytes = 4 * 44 - 1}}; });
  CHECK(problem.option() == "cache_bytes");
  CHECK(test::has(problem.what(), "176"));
}

TEST_CASE("only the members of a struct that are fields are cached",
          "[parquet][promise:race-free-10]") {
  const test::temp_dir dir;
  constexpr std::size_t rows = 8;
  constexpr std::int64_t length = 1 << 18;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < rows; ++i) {
    texts.emplace_back(length, static_cast<char>('a' + static_cast<char>(i)));
  }
  const std::string path =
      written(dir.path("a.parquet"),
              test::structs(
                  "", {test::structs("image", {test::strings("bytes", "z", texts),
                                               test::numbers("width", "i", counted<int>(rows))})}),
              2);
  using width = ps::record<ps::field<"image.width", std::int32_t>>;
  const ps::parquet_dataset<width> data{path};
  const auto before = ::arrow::default_memory_pool()->bytes_allocated();
  CHECK(test::values<"image.width">(read_batch(data, {7, 5, 3, 1})) ==
        std::vector<std::int32_t>{7, 5, 3, 1});
  CHECK(data.held_bytes() == rows * sizeof(std::int32_t));
  CHECK(::arrow::default_memory_pool()->bytes_allocated() - before < length);
}

TEST_CASE("fields may have one column of a Parquet file", "[parquet]") {
  const test::temp_dir dir;
  const std::string path = written(
      dir.path("a.parquet"),
      test::structs("", {test::numbers("y", "f", counted<float>(9, 20)),
                         test::numbers("x", "f", counted<float>(9)),
                         test::fixed_lists("z", 2, test::numbers("", "f", counted<float>(18)))}),
      4);
  using three = ps::record<ps::field<"a", float>, ps::field<"b", float>, ps::field<"c", float>>;
  const ps::parquet_dataset<three> data{path, {.table = {.columns = {"x", "y", "x"}}}};
  auto batch = read_batch(data, {8, 2});
  CHECK(test::values<"a">(batch) == std::vector{8.0F, 2.0F});
  CHECK(test::values<"b">(batch) == std::vector{28.0F, 22.0F});
  CHECK(test::values<"c">(batch) == std::vector{8.0F, 2.0F});
  using lists =
      ps::record<ps::field<"a", float, 2>, ps::field<"b", float>, ps::field<"c", float, 2>>;
  const ps::parquet_dataset<lists> nested{path, {.table = {.columns = {"z", "y", "z"}}}};
  auto pairs = read_batch(nested, {8});
  CHECK(test::values<"a">(pairs) == std::vector{16.0F, 17.0F});
  CHECK(test::values<"b">(pairs) == std::vector{28.0F});
  CHECK(test::values<"c">(pairs) == std::vector{16.0F, 17.0F});
}

TEST_CASE("lists of a Parquet file have one length, or the error names the row",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  using list = ps::record<ps::field<"x", std::uint8_t, ps::dyn>>;
  const auto bytes = test::numbers("", "C", counted<std::uint8_t>(14));
  const auto lists = [&](const std::vector<std::int32_t>& offsets) {
    return test::structs("", {test::lists<std::int32_t>("x", offsets, bytes)});
  };
  const ps::parquet_dataset<list> data{written(dir.path("a.parquet"), lists({0, 3, 6, 9, 12}), 2)};
  CHECK(test::values<"x">(read_batch(data, {3})) == std::vector<std::uint8_t>{9, 10, 11});
  REQUIRE(data.warnings().size() == 1);
  CHECK(test::has(data.warnings()[0], "column \"x\" is list<uint8>"));
  const std::string path = written(dir.path("b.parquet"), lists({0, 3, 6, 9, 13}), 2);
  const ps::parquet_dataset<list> ragged{path};
  CHECK(test::values<"x">(read_batch(ragged, {1})) == std::vector<std::uint8_t>{3, 4, 5});
  const auto problem = error_of<ps::column_shape_mismatch>([&] { read_batch(ragged, {2}); });
  CHECK(problem.where() == path);
  CHECK(problem.found() == "4 in row 3");
  const ps::parquet_dataset<list> other{
      written(dir.path("c.parquet"), lists({0, 3, 6, 10, 14}), 2)};
  const auto others = error_of<ps::column_shape_mismatch>([&] { read_batch(other, {2}); });
  CHECK(others.found() == "other lengths in row group 1");
  CHECK(others.column() == "x");
}

TEST_CASE("the first row that determines lengths may be in a later file",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  using list = ps::record<ps::field<"x", std::uint8_t, ps::dyn>>;
  const auto lists = [&](const std::vector<std::int32_t>& offsets) {
    const auto bytes = test::numbers("", "C", counted<std::uint8_t>(14));
    return test::structs("", {test::lists<std::int32_t>("x", offsets, bytes)});
  };
  const std::string none = written(dir.path("none.parquet"), lists({0}), 2);
  const std::string right = written(dir.path("right.parquet"), lists({0, 3, 6}), 2);
  const ps::parquet_dataset<list> data{{none, right}};
  CHECK(test::values<"x">(read_batch(data, {1})) == std::vector<std::uint8_t>{3, 4, 5});
  const std::string ragged = written(dir.path("ragged.parquet"), lists({0, 3, 7}), 2);
  const auto problem =
      error_of<ps::column_shape_mismatch>([&] { ps::parquet_dataset<list>{{none, ragged}}; });
  CHECK(problem.where() == ragged);
  CHECK(problem.found() == "4 in row 1");
}

TEST_CASE("columns of numbers are the same for any encoding, in one page or several", "[parquet]") {
  const test::temp_dir dir;
  using row = ps::record<ps::field<"i", std::int32_t>, ps::field<"u", std::uint32_t>,
                         ps::field<"l", std::int64_t>, ps::field<"w", std::uint64_t>,
                         ps::field<"f", float>, ps::field<"g", double>, ps::field<"b", std::int8_t>,
                         ps::field<"s", std::uint16_t>, ps::field<"h", std::uint16_t>>;
  const auto table = test::structs("", {test::numbers("h", "e", counted<std::uint16_t>(700, 9)),
                                        test::numbers("s", "S", counted<std::uint16_t>(700, 8)),
                                        test::numbers("b", "c", counted<std::int8_t>(700, 7)),
                                        test::numbers("g", "g", counted<double>(700, 6)),
                                        test::numbers("f", "f", counted<float>(700, 5)),
                                        test::numbers("w", "L", counted<std::uint64_t>(700, 4)),
                                        test::numbers("l", "l", counted<std::int64_t>(700, 3)),
                                        test::numbers("u", "I", counted<std::uint32_t>(700, 2)),
                                        test::numbers("i", "i", counted<std::int32_t>(700, 1))});
  const auto encoding = GENERATE(parquet::Encoding::RLE_DICTIONARY, parquet::Encoding::PLAIN,
                                 parquet::Encoding::DELTA_BINARY_PACKED);
  const auto version =
      GENERATE(parquet::ParquetDataPageVersion::V1, parquet::ParquetDataPageVersion::V2);
  const auto page_bytes = GENERATE(std::int64_t{256}, std::int64_t{1} << 20);
  const auto codec = GENERATE(::arrow::Compression::UNCOMPRESSED, ::arrow::Compression::SNAPPY,
                              ::arrow::Compression::LZ4);
  if (!::arrow::util::Codec::IsAvailable(codec)) return;
  parquet::WriterProperties::Builder how;
  how.compression(codec)
      ->data_page_version(version)
      ->data_pagesize(page_bytes)
      ->write_batch_size(32);
  if (encoding != parquet::Encoding::RLE_DICTIONARY) how.disable_dictionary();
  if (encoding == parquet::Encoding::DELTA_BINARY_PACKED) {
    for (const char* const column : {"i", "u", "l", "w", "b", "s"}) how.encoding(column, encoding);
    for (const char* const column : {"f", "g", "h"}) {
      how.encoding(column, parquet::Encoding::BYTE_STREAM_SPLIT);
    }
  }
  const ps::parquet_dataset<row> data{written(dir.path("a.parquet"), table, 300, how.build())};
  auto batch = read_batch(data, {699, 0, 299, 300, 412});
  for (std::size_t at = 0; const unsigned place : {699U, 0U, 299U, 300U, 412U}) {
    CHECK(batch.get<"i">()(at) == static_cast<std::int32_t>(place + 1));
    CHECK(batch.get<"u">()(at) == place + 2);
    CHECK(batch.get<"l">()(at) == place + 3);
    CHECK(batch.get<"w">()(at) == place + 4);
    CHECK(batch.get<"f">()(at) == static_cast<float>(place + 5));
    CHECK(batch.get<"g">()(at) == place + 6.0);
    CHECK(batch.get<"b">()(at) == static_cast<std::int8_t>(place + 7));
    CHECK(batch.get<"s">()(at) == place + 8);
    CHECK(batch.get<"h">()(at) == place + 9);
    ++at;
  }
  CHECK(data.held_bytes() == 700 * 41);
}

TEST_CASE("columns of numbers stay in the memory of their pages if no other column is read",
          "[parquet][promise:race-free-10]") {
  const test::temp_dir dir;
  const auto plain = parquet::WriterProperties::Builder{}.disable_dictionary()->build();
  constexpr std::size_t rows = 2000;
  std::vector<made_column> columns;
  for (const char* const name : {"x", "a", "y"}) {
    columns.push_back(test::numbers(name, "f", counted<float>(rows)));
  }
  const std::string path = written(dir.path("a.parquet"), test::structs("", columns), rows, plain);
  const auto taken = [&](const auto& data) {
    const auto before = ::arrow::default_memory_pool()->bytes_allocated();
    auto batch = read_batch(data, {rows - 1});
    CHECK(batch.template get<"y">()(0) == static_cast<float>(rows - 1));
    return ::arrow::default_memory_pool()->bytes_allocated() - before;
  };
  constexpr std::int64_t bytes = rows * sizeof(float);
  // Three adjacent columns stay in the memory that they were read into. Two columns with a gap in
  // between would waste half of that memory, so they are copied.
  using all = ps::record<ps::field<"x", float>, ps::field<"a", float>, ps::field<"y", float>>;
  const ps::parquet_dataset<all> whole{path};
  const auto total = ::arrow::default_memory_pool()->total_bytes_allocated();
  CHECK(taken(whole) < 3 * bytes + bytes / 2);
  CHECK(::arrow::default_memory_pool()->total_bytes_allocated() - total < 4 * bytes);
  using outer = ps::record<ps::field<"x", float>, ps::field<"y", float>>;
  const ps::parquet_dataset<outer> part{path};
  const auto two = taken(part);
  CHECK(two >= 2 * bytes);
  CHECK(two < 2 * bytes + bytes / 2);
  // One column can stay in place. The other two columns are decoded into separate memory.
  parquet::WriterProperties::Builder mixed;
  mixed.disable_dictionary();
  mixed.encoding("x", parquet::Encoding::BYTE_STREAM_SPLIT);
  mixed.encoding("a", parquet::Encoding::BYTE_STREAM_SPLIT);
  const ps::parquet_dataset<all> one{
      written(dir.path("b.parquet"), test::structs("", columns), rows, mixed.build())};
  const auto copied = taken(one);
  CHECK(copied >= 3 * bytes);
  CHECK(copied < 3 * bytes + bytes / 2);
  // Since Arrow 20, a page of a compressed column may stay uncompressed if compression does not
  // shorten it.
  if (!::arrow::util::Codec::IsAvailable(::arrow::Compression::SNAPPY)) return;
  std::vector<float> any(rows);
  std::vector<float> few(rows);  // compression saves a quarter
  for (std::uint32_t bits = 1, at = 0; at < rows; ++at) {
    bits = bits * 1'664'525U + 1'013'904'223U;
    any[at] = static_cast<float>(bits);
    few[at] = static_cast<float>((bits >> 16U) % 200U);
  }
  few.back() = static_cast<float>(rows - 1);
  parquet::WriterProperties::Builder packed;
  packed.disable_dictionary()
      ->compression(::arrow::Compression::SNAPPY)
      ->data_page_version(parquet::ParquetDataPageVersion::V2);
  const ps::parquet_dataset<all> some{
      written(dir.path("c.parquet"),
              test::structs("", {test::numbers("x", "f", any), test::numbers("a", "f", few),
                                 test::numbers("y", "f", few)}),
              rows, packed.build())};
  const auto unpacked = taken(some);
  CHECK(unpacked >= 3 * bytes);
  CHECK(unpacked < 3 * bytes + bytes / 2);
}

TEST_CASE("nulls of a Parquet file are rejected at their batch with the file's row, or zeros",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  using number = ps::record<ps::field<"n", std::int32_t>>;
  const auto column = test::with_nulls(test::numbers("n", "i", counted<int>(8, 1)), "11111011");
  const std::string path = written(dir.path("a.parquet"), test::structs("", {column}), 3);
  const ps::parquet_dataset<number> data{path};
  CHECK(test::values<"n">(read_batch(data, {7, 2})) == std::vector<std::int32_t>{8, 3});
  const auto problem = error_of<ps::null_in_column>([&] { read_batch(data, {3}); });
  CHECK(problem.row() == 5);
  CHECK(problem.where() == path);
  const ps::parquet_dataset<number> zeros{path,
                                          {.table = {.null = ps::null_values::value_initialised}}};
  CHECK(test::values<"n">(read_batch(zeros, {4, 5, 6})) == std::vector<std::int32_t>{5, 0, 7});
}

TEST_CASE("a Parquet file that is named twice is rejected, read once or read twice",
          "[parquet][fault:files-4]") {
  const test::temp_dir dir;
  const std::string first = written(dir.path("a.parquet"), points(3, 0), 4);
  const std::string second = written(dir.path("b.parquet"), points(2, 3), 4);
  const std::vector paths{first, second, dir.path("./a.parquet")};
  const auto twice = error_of<ps::duplicate_entry>([&] { ps::parquet_dataset<point>{paths}; });
  CHECK(twice.path() == paths[2]);
  CHECK(twice.first_path() == first);
  const ps::parquet_dataset<point> once{paths, {.duplicates = ps::duplicate_action::take_last}};
  CHECK(test::values<"label">(read_batch(once, {0, 1, 2, 3, 4})) ==
        std::vector<std::int64_t>{3, 4, 0, 1, 2});
  CHECK(ps::parquet_dataset<point>{paths, {.duplicates = ps::duplicate_action::keep}}.size() == 8);
  CHECK_THROWS_AS((ps::parquet_blobs{paths, {.columns = {.blob = "meta.path"}}}),
                  ps::duplicate_entry);
}

TEST_CASE("a file that is not Parquet and columns that do not fit are rejected by name",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  const std::string path = written(dir.path("a.parquet"), points(10, 0), 4);
  CHECK(error_of<ps::file_unreadable>([&] {
          ps::parquet_dataset<point>{dir.path("none")};
        }).path() == dir.path("none"));
  std::ofstream{dir.path("text")} << "this is no Parquet file at all";
  CHECK(error_of<ps::file_corrupt>([&] { ps::parquet_dataset<point>{dir.path("text")}; }).path() ==
        dir.path("text"));
  using wrong = ps::record<ps::field<"label", std::int32_t>>;
  const auto problem =
      error_of<ps::column_type_mismatch>([&] { ps::parquet_dataset<wrong>{path}; });
  CHECK(problem.where() == path);
  CHECK(problem.found() == "int64");
  using member = ps::record<ps::field<"meta.n", std::int32_t>>;
  const ps::parquet_dataset<member> nested{path};
  CHECK(test::values<"meta.n">(read_batch(nested, {9, 2})) == std::vector<std::int32_t>{9, 2});
  CHECK(error_of<ps::option_error>([] {
          ps::parquet_dataset<member>{std::vector<std::string>{}};
        }).option() == "paths");
}
