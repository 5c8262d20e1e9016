// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/table/parquet/detail/parquet_file.hpp>

#include <arrow/io/file.h>
#include <arrow/util/compression.h>
#include <fcntl.h>
#include <parquet/arrow/writer.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <penstock_ext/table/parquet/parquet_blobs.hpp>
#include <penstock_ext/table/parquet/parquet_dataset.hpp>

#include "data/read_batch.hpp"
#include "ext/files/npy_files.hpp"
#include "ext/parquet/written.hpp"
#include "ext/table/arrow_producer.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/limits.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::read_batch;
using test::written;

namespace {

using numbered_row = ps::record<ps::field<"n", std::int64_t>>;

test::made_column numbered_rows(std::size_t rows) {
  return test::structs("", {test::numbers("n", "l", test::counted<std::int64_t>(rows))});
}

ps::detail::parquet_groups groups_of(const std::vector<std::string>& paths) {
  return {paths, false, false, [](const auto&) { return std::vector<int>{}; }};
}

// Redirects the descriptors of the file `path` to a folder, so that reads fail.
std::size_t break_descriptors(const std::string& path) {
  std::vector<int> found;
  for (const auto& one : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code problem;
    if (std::filesystem::read_symlink(one.path(), problem) == path) {
      found.push_back(std::stoi(one.path().filename().string()));
    }
  }
  const int folder = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (const int one : found) REQUIRE(::dup3(folder, one, O_CLOEXEC) == one);
  ::close(folder);
  return found.size();
}

}  // namespace

TEST_CASE("a Parquet file that becomes unreadable is not reported as damaged",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  const std::string path =
      std::filesystem::canonical(written(dir.path("a.parquet"), numbered_rows(40), 10)).string();
  const ps::parquet_dataset<numbered_row> data{path};
  REQUIRE(test::values<"n">(read_batch(data, {3})) == std::vector<std::int64_t>{3});
  REQUIRE(break_descriptors(path) == 1);
  const auto problem = error_of<ps::file_unreadable>([&] { read_batch(data, {13}); });
  CHECK(problem.path() == path);
  CHECK(problem.offset() > 4);
  CHECK(problem.found() == "Is a directory");
  // Row 4 is already in the cache.
  CHECK(test::values<"n">(read_batch(data, {4})) == std::vector<std::int64_t>{4});
  CHECK(error_of<ps::file_unreadable>([&] {
          ps::parquet_dataset<numbered_row>{dir.path("")};
        }).found() == "a folder");
}

TEST_CASE("more Parquet files than descriptors are rejected with a remedy",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  const std::vector<std::string> paths(20, written(dir.path("a.parquet"), numbered_rows(4), 4));
  std::optional<test::descriptor_limit> few{test::open_descriptors() + 6};
  std::vector<std::string> said;
  for (const bool direct : {false, true}) {
    said.push_back(error_of<ps::file_unreadable>([&] {
                     ps::parquet_dataset<numbered_row>{paths, {.direct = direct}};
                   }).found());
  }
  few.reset();
  CHECK(said ==
        std::vector<std::string>(
            2, "Too many open files: all Parquet files stay open: raise the limit (ulimit -n)"));
}

TEST_CASE("a Parquet file that is truncated or written to while it is read is reported as changed",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  const std::string path = written(dir.path("a.parquet"), numbered_rows(40), 10);
  const ps::parquet_dataset<numbered_row> data{path};
  const ps::parquet_blobs blobs{
      {written(dir.path("b.parquet"), test::structs("", {test::strings("b", "z", {"x", "y"})}), 1)},
      {.columns = {.blob = "b"}}};
  std::filesystem::resize_file(path, 40);
  CHECK(error_of<ps::file_changed>([&] { read_batch(data, {13}); }).path() == path);
  std::filesystem::resize_file(dir.path("b.parquet"), 8);
  ps::blob_buffer buffer;
  CHECK(error_of<ps::file_changed>([&] { (void)blobs.bytes(1, buffer); }).path() ==
        dir.path("b.parquet"));
  CHECK(error_of<ps::file_corrupt>([&] { ps::parquet_dataset<numbered_row>{path}; }).path() ==
        path);  // truncated before it is opened
}

TEST_CASE("an intact Parquet file that cannot be read is not reported as damaged",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  const auto snappy =
      parquet::WriterProperties::Builder{}.compression(::arrow::Compression::SNAPPY)->build();
  if (!::arrow::util::Codec::IsAvailable(::arrow::Compression::SNAPPY)) return;
  const std::string path = written(dir.path("a.parquet"), numbered_rows(40), 40, snappy);
  const std::string whole = test::content_of(path);
  const auto rejected = [&](const std::string& bytes) {
    test::write_file(path, bytes);
    return error_of<ps::file_format_error>([&] { (void)ps::parquet_dataset<numbered_row>{path}; });
  };
  const auto encrypted = rejected(whole.substr(0, whole.size() - 4) + "PARE");
  CHECK(encrypted.offset() == whole.size() - 4);
  CHECK(test::has(encrypted.found(), "encrypted"));
  CHECK(test::has(rejected("ARROW1" + whole + "ARROW1").found(), "an Arrow file"));
  std::string lzo = whole;
  const std::size_t codec = lzo.rfind("\x15\x02" + test::footer_number(40));
  REQUIRE(codec != std::string::npos);
  lzo[codec + 1] = '\6';
  const auto unpacked = rejected(lzo);
  CHECK(unpacked.expected() == "column \"n\" of row group 0");
  CHECK(test::has(unpacked.found(), "(lzo)"));

  test::write_file(path, whole);
  const auto footer = parquet::ReadMetaData(::arrow::io::ReadableFile::Open(path).ValueOrDie());
  footer->set_file_path("part-0.parquet");
  const auto file = ::arrow::io::FileOutputStream::Open(dir.path("_metadata")).ValueOrDie();
  REQUIRE(parquet::arrow::WriteMetaDataFile(*footer, file.get()).ok());
  REQUIRE(file->Close().ok());
  const auto elsewhere = rejected(test::content_of(dir.path("_metadata")));
  CHECK(elsewhere.found() == "the column in the file part-0.parquet: open that file");
}

TEST_CASE("a footer with contradictory row counts is damaged", "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  const std::string path = written(dir.path("a.parquet"), numbered_rows(600), 300);
  REQUIRE(test::with_footer(path, 600, 601) == 1);
  const auto problem =
      error_of<ps::file_corrupt>([&] { (void)ps::parquet_dataset<numbered_row>{path}; });
  CHECK(problem.expected() == "601 rows, according to the footer");
  CHECK(problem.found() == "600 in its row groups");
}

TEST_CASE("a footer with impossible numbers is rejected before memory is allocated",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  constexpr std::int64_t max = (std::numeric_limits<std::int64_t>::max)();
  constexpr std::int64_t large = std::int64_t{1} << 61U;
  const std::string path = dir.path("a.parquet");
  std::size_t rejected = 0;
  for (const std::int64_t number : {max, -max - 1, std::int64_t{-1}, large, large * 2 - 1}) {
    for (const std::size_t skipped : {0U, 1U, 2U, 3U}) {
      written(path, numbered_rows(600), 300);
      REQUIRE(test::with_footer(path, 300, number, skipped) > 0);
      INFO("300 is " << number << ", but for " << skipped);
      try {
        const ps::parquet_dataset<numbered_row> data{path};
        CHECK(data.size() == 600);
        read_batch(data, {0, 599});
      } catch (const ps::file_corrupt& problem) {
        CHECK(problem.path() == path);
        ++rejected;
      } catch (const ps::option_error& problem) {  // the footer claims too many rows for the cache
        CHECK(problem.option() == "cache_bytes");
        ++rejected;
      }
    }
  }
  CHECK(rejected >= 15);
}

TEST_CASE("the rows of Parquet files, and the bytes of their columns, are added with a check",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  constexpr std::int64_t large = std::int64_t{1} << 61U;
  std::vector<std::string> paths;
  for (const char* name : {"a.parquet", "b.parquet", "c.parquet"}) {
    paths.push_back(written(dir.path(name), numbered_rows(300), 300));
    REQUIRE(test::with_footer(paths.back(), 300, large) > 0);
  }
  const auto problem = error_of<ps::file_corrupt>([&] { (void)groups_of(paths); });
  CHECK(problem.path() == paths[1]);
  CHECK(test::has(problem.found(), "2305843009213693952 in row group 0"));
  CHECK(groups_of({paths[0]}).size() == std::uint64_t{1} << 61U);

  REQUIRE(test::with_footer(paths[2], large, -1) > 0);
  const auto negative = error_of<ps::file_corrupt>([&] { (void)groups_of({paths[2]}); });
  CHECK(negative.found() == "-1");

  const std::vector<std::string> texts(3, std::string(5000, 'x'));
  const std::string path = written(
      dir.path("d.parquet"),
      test::structs("", {test::strings("b", "z", texts), test::strings("c", "z", texts)}), 3);
  const auto bytes = static_cast<std::int64_t>(ps::detail::parquet_file{path}.bytes(0, {0}));
  const auto found_with = [&](std::int64_t before, std::int64_t number) {
    REQUIRE(test::with_footer(path, before, number) >= 2);
    const auto rejected =
        error_of<ps::file_corrupt>([&] { (void)ps::detail::parquet_file{path}.bytes(0, {0, 1}); });
    CHECK(rejected.path() == path);
    return rejected.found();
  };
  CHECK(found_with(bytes, -1) == "column 0 of -1");
  constexpr std::int64_t max = (std::numeric_limits<std::int64_t>::max)();
  CHECK(found_with(-1, max) == "column 1 of " + std::to_string(max));
}

TEST_CASE("a label of a Parquet file that has no room is rejected with the file and its row",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  std::vector<std::uint64_t> labels(7, 3);
  labels[5] = std::uint64_t{1} << 63U;
  const std::string path =
      written(dir.path("a.parquet"),
              test::structs("", {test::strings("b", "z", std::vector<std::string>(7, "x")),
                                 test::numbers("y", "L", labels)}),
              3);
  const ps::parquet_blobs source{{path}, {.columns = {.blob = "b", .label = "y"}}};
  CHECK(source.label(2) == 3);
  const auto problem = error_of<ps::table_error>([&] { (void)source.label(4); });
  CHECK(problem.where() == path);
  CHECK(problem.column() == "y");
  CHECK(problem.expected() == "labels below 2^63 in row 5");
}

TEST_CASE("pages of a Parquet file are compared with their checksums if requested",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  using pair = ps::record<ps::field<"n", std::int64_t>, ps::field<"m.k", std::int64_t>>;
  const auto rows = test::counted<std::int64_t>(400);
  const auto table = test::structs(
      "", {test::numbers("n", "l", rows), test::structs("m", {test::numbers("k", "l", rows)})});
  for (const auto kind : {::arrow::Compression::UNCOMPRESSED, ::arrow::Compression::SNAPPY}) {
    if (!::arrow::util::Codec::IsAvailable(kind)) continue;
    const auto with_sums = parquet::WriterProperties::Builder{}
                               .compression(kind)
                               ->disable_dictionary()
                               ->enable_page_checksum()
                               ->build();
    const std::string path = written(dir.path("a.parquet"), table, 200, with_sums);
    const auto last = [&](int leaf) {
      return ps::detail::parquet_file{path}.chunks(1, {leaf}).at(0);
    };
    const auto wrong = [](const auto& values) {
      return values != std::vector<std::int64_t>{200, 251, 399};
    };
    std::size_t unseen = 0;
    for (const int column : {0, 1}) {
      const auto chunk = last(column);
      for (std::uint64_t place = 0; place < 20; ++place) {
        // Flips a bit in the second half of the chunk, behind the page header.
        const std::uint64_t at = chunk.offset + chunk.bytes - 1 - place * chunk.bytes / 40;
        test::flip_bit(path, at, place % 8);
        INFO("kind " << kind << ", column " << column << ", byte " << at);
        const ps::parquet_dataset<pair> data{path, {.verify = true}};
        CHECK(test::values<"n">(read_batch(data, {3})) == std::vector<std::int64_t>{3});
        const auto problem = error_of<ps::file_corrupt>([&] { read_batch(data, {200}); });
        CHECK(problem.path() == path);
        CHECK(problem.offset() == chunk.offset);
        CHECK(problem.expected() == (column == 0
                                         ? "complete pages of column \"n\" in row group 1"
                                         : "complete pages of column \"m.k\" in row group 1"));
        CHECK(test::has(problem.found(), "CRC"));
        CHECK(test::has(problem.found(), ": the file is damaged: copy or write it again"));

        const ps::parquet_dataset<pair> unchecked{path};
        try {
          auto batch = read_batch(unchecked, {200, 251, 399});
          if (wrong(test::values<"n">(batch)) || wrong(test::values<"m.k">(batch))) ++unseen;
        } catch (const ps::file_corrupt&) {  // snappy detected the damage
        }
        test::flip_bit(path, at, place % 8);
      }
    }
    CHECK(unseen > 0);  // only the checksums detect the damage
    const ps::parquet_dataset<pair> whole{path, {.verify = true}};
    CHECK_FALSE(wrong(test::values<"m.k">(read_batch(whole, {200, 251, 399}))));
  }
}

TEST_CASE("blobs of a Parquet file are compared with the checksums of their pages if requested",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  const auto with_sums = parquet::WriterProperties::Builder{}.enable_page_checksum()->build();
  const auto table = test::structs("", {test::strings("b", "z", {"one", "two", "three"})});
  const std::string path = written(dir.path("a.parquet"), table, 3, with_sums);
  const auto chunk = ps::detail::parquet_file{path}.chunks(0, {0}).at(0);
  std::string bytes(static_cast<std::size_t>(chunk.bytes), 0);
  std::ifstream{path, std::ios::binary}
      .seekg(static_cast<std::streamoff>(chunk.offset))
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  test::flip_bit(path, chunk.offset + bytes.find("one"), 0);
  ps::blob_buffer buffer;
  const ps::parquet_blobs unchecked{{path}, {.columns = {.blob = "b"}}};
  CHECK(unchecked.bytes(0, buffer)[0] == std::byte{'n'});
  const ps::parquet_blobs checked{{path}, {.columns = {.blob = "b"}, .verify = true}};
  const auto problem = error_of<ps::file_corrupt>([&] { (void)checked.bytes(2, buffer); });
  CHECK(problem.expected() == "complete pages of column \"b\" in row group 0");
}

TEST_CASE("a Parquet file with a changed byte gives an error or the same number of rows",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  using row = ps::record<ps::field<"l", std::int64_t>, ps::field<"f", float>>;
  constexpr std::size_t rows = 40;
  const auto table =
      test::structs("", {test::numbers("f", "f", test::counted<float>(rows)),
                         test::numbers("l", "l", test::counted<std::int64_t>(rows))});
  const auto version =
      GENERATE(parquet::ParquetDataPageVersion::V1, parquet::ParquetDataPageVersion::V2);
  const auto codec = GENERATE(::arrow::Compression::UNCOMPRESSED, ::arrow::Compression::SNAPPY);
  const auto encoding = GENERATE(parquet::Encoding::RLE_DICTIONARY, parquet::Encoding::PLAIN,
                                 parquet::Encoding::BYTE_STREAM_SPLIT);
  parquet::WriterProperties::Builder how;
  how.disable_statistics()->data_page_version(version)->compression(codec);
  if (encoding != parquet::Encoding::RLE_DICTIONARY) how.disable_dictionary();
  if (encoding == parquet::Encoding::BYTE_STREAM_SPLIT) {
    how.encoding("f", encoding)->encoding("l", parquet::Encoding::DELTA_BINARY_PACKED);
  }
  const std::string path = test::written(dir.path("a.parquet"), table, rows, how.build());
  std::ifstream in{path, std::ios::binary};
  const std::string bytes{std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{}};
  std::vector<std::uint64_t> all(rows);
  std::iota(all.begin(), all.end(), std::uint64_t{0});
  std::size_t rejected = 0;
  std::size_t read = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const unsigned change : {0x01U, 0x80U, 0xffU}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(
          static_cast<unsigned char>(static_cast<unsigned char>(changed[at]) ^ change));
      const std::string other = dir.path("b.parquet");
      std::ofstream{other, std::ios::binary} << changed;
      try {
        const ps::parquet_dataset<row> data{other};
        if (data.size() == rows) (void)test::read_batch(data, all);
        ++read;
      } catch (const ps::error&) {
        ++rejected;
      }
    }
  }
  CHECK(rejected > bytes.size() / 4);
  CHECK(read > bytes.size() / 4);  // some damaged files can be read, with other values
}

namespace {

/// Returns the footer metadata of the first column in the first row group.
std::unique_ptr<parquet::ColumnChunkMetaData> first_column(const std::string& path) {
  static std::unique_ptr<parquet::ParquetFileReader> open;  // must outlive the result
  open = parquet::ParquetFileReader::OpenFile(path);
  return open->metadata()->RowGroup(0)->ColumnChunk(0);
}

/// Inserts bytes into a file at offset `at`.
void insert(const std::string& path, std::size_t at, const std::string& more) {
  std::ifstream in{path, std::ios::binary};
  std::string bytes{std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{}};
  bytes.insert(at, more);
  std::ofstream{path, std::ios::binary} << bytes;
}

}  // namespace

TEST_CASE("a dictionary after the values of a Parquet file does not overwrite them",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  using row = ps::record<ps::field<"i", std::int32_t>>;
  constexpr std::size_t rows = 40;
  const auto how = parquet::WriterProperties::Builder{}
                       .disable_dictionary()
                       ->disable_statistics()
                       ->compression(::arrow::Compression::SNAPPY)
                       ->build();
  if (!::arrow::util::Codec::IsAvailable(::arrow::Compression::SNAPPY)) return;
  const auto numbers = test::numbers("i", "i", test::counted<std::int32_t>(rows));
  const std::string path =
      test::written(dir.path("a.parquet"), test::structs("", {numbers}), rows, how);
  const std::int64_t bytes = first_column(path)->total_compressed_size();
  // 160 bytes that Snappy expands to 164 bytes, the encoding of 40 entries.
  const std::string page =
      std::string{"\x15\x04\x15\xc0\x02\x15\xc8\x02\x4c\x15\x50\x15\x00\x00\x00", 15} +
      std::string{"\xa0\x01\xf0\x9f", 4} + std::string(160, '7');
  insert(path, 4 + static_cast<std::size_t>(bytes), page);
  const auto more = static_cast<std::int64_t>(page.size());
  REQUIRE(test::with_footer(path, bytes, bytes + more) >= 1);
  // Changes the row counts of the file and of the row group, and the value count of the column, so
  // that the column has more values than rows.
  REQUIRE(test::with_footer(path, rows, 2 * rows, 1) == 2);
  REQUIRE(test::with_footer(path, 2 * rows, rows, 1) == 1);
  REQUIRE(first_column(path)->num_values() == 2 * rows);
  const ps::parquet_dataset<row> data{path};
  auto batch = test::read_batch(data, {0, 1, 38, 39});
  CHECK(test::values<"i">(batch) == std::vector<std::int32_t>{0, 1, 38, 39});
}

TEST_CASE("a column of a Parquet file that has two dictionaries is rejected",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  using row = ps::record<ps::field<"i", std::int32_t>>;
  const auto how = parquet::WriterProperties::Builder{}.disable_statistics()->build();
  const auto numbers = test::numbers("i", "i", test::counted<std::int32_t>(40));
  const std::string path =
      test::written(dir.path("a.parquet"), test::structs("", {numbers}), 40, how);
  const auto about = first_column(path);
  REQUIRE(about->has_dictionary_page());
  const std::int64_t begin = about->dictionary_page_offset();
  const std::int64_t end = about->data_page_offset();
  const std::int64_t bytes = about->total_compressed_size();
  std::ifstream in{path, std::ios::binary};
  const std::string all{std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{}};
  insert(path, static_cast<std::size_t>(end),
         all.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  REQUIRE(test::with_footer(path, bytes, bytes + end - begin) >= 1);
  CHECK(first_column(path)->total_compressed_size() == bytes + end - begin);
  const ps::parquet_dataset<row> data{path};
  CHECK_THROWS_AS(test::read_batch(data, {0}), ps::file_corrupt);
}

TEST_CASE("a page of a Parquet file whose levels are null is null even if it has values",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  constexpr std::size_t rows = 40;
  const auto plain =
      parquet::WriterProperties::Builder{}.disable_dictionary()->disable_statistics()->build();
  const std::string path = test::written(dir.path("a.parquet"), numbered_rows(rows), rows, plain);
  std::ifstream in{path, std::ios::binary};
  std::string bytes{std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{}};
  const std::string levels{"\x02\0\0\0\x50\x01", 6};  // 2 bytes that encode 40 levels of 1
  const std::size_t at = bytes.find(levels);
  REQUIRE(at != std::string::npos);
  bytes[at + 5] = 0;
  std::ofstream{path, std::ios::binary} << bytes;
  const ps::parquet_dataset<numbered_row> data{path};
  CHECK_THROWS_AS(read_batch(data, {0}), ps::null_in_column);
}

TEST_CASE("a short page of a Parquet file with impossible levels is rejected",
          "[parquet][fault:files-12]") {
  const test::temp_dir dir;
  constexpr std::size_t rows = 40;
  const auto numbers = test::counted<std::int64_t>(rows);
  const auto table =
      test::structs("", {test::numbers("a", "l", numbers), test::numbers("b", "l", numbers)});
  const auto plain = parquet::WriterProperties::Builder{}
                         .disable_dictionary()
                         ->disable_statistics()
                         ->data_page_version(parquet::ParquetDataPageVersion::V2)
                         ->build();
  const std::string path = test::written(dir.path("a.parquet"), table, rows, plain);
  std::ifstream in{path, std::ios::binary};
  std::string bytes{std::istreambuf_iterator<char>{in}, std::istreambuf_iterator<char>{}};
  // Changes the page of the second column from 2 bytes of levels and 320 bytes of values to 319
  // bytes, one of which is for repetition levels. The column has no repetition levels.
  const std::string sizes{"\x15\x84\x05\x15\x84\x05", 6};
  const std::size_t at = bytes.rfind(sizes);
  REQUIRE(at != std::string::npos);
  bytes.replace(at, sizes.size(), "\x15\xfe\x04\x15\xfe\x04");
  const std::string levels{"\x15\x04\x15\0", 4};
  const std::size_t lengths = bytes.find(levels, at);
  REQUIRE(lengths != std::string::npos);
  bytes[lengths + 3] = 2;
  std::ofstream{path, std::ios::binary} << bytes;
  using row = ps::record<ps::field<"a", std::int64_t>, ps::field<"b", std::int64_t>>;
  const ps::parquet_dataset<row> data{path};
  const auto problem = error_of<ps::file_corrupt>([&] { read_batch(data, {0}); });
  CHECK(problem.expected() == "complete pages of column \"b\" in row group 0");
}
