// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/mds/mds_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock_ext/blob/mds/mds_shards.hpp>
#include <penstock_ext/blob/mds/pack_mds.hpp>

#include "ext/blob/folders.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

std::span<const std::byte> value_of(const std::string& text) {
  return std::as_bytes(std::span{text});
}

// Blobs of some lengths, and labels; the one at `broken` can't be read.
struct some_blobs {
  std::vector<std::string> blobs;
  std::uint64_t broken = ~std::uint64_t{0};

  std::uint64_t size() const { return blobs.size(); }
  std::span<const std::byte> bytes(std::uint64_t index, ps::blob_buffer& buffer) const {
    if (index == broken) throw std::runtime_error("broken");
    const auto room = buffer.room_for(blobs[index].size());
    std::copy_n(value_of(blobs[index]).begin(), room.size(), room.begin());
    return room;
  }
  std::int64_t label(std::uint64_t index) const { return static_cast<std::int64_t>(index) - 3; }
  std::string key(std::uint64_t index) const { return "blob " + std::to_string(index); }
};

some_blobs many_blobs() {
  some_blobs all;
  for (std::size_t i = 0; i < 40; ++i) {
    all.blobs.push_back(std::string(i * 37 % 101, static_cast<char>('a' + i % 26)));
  }
  return all;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a shard has the bytes that Mosaic's writer makes of its samples",
          "[blob][promise:exact-14]") {
  const test::folder dir;
  ps::mds_writer out{dir.path(), {{"b", "str"}, {"a", "uint16"}}};
  const std::string number = "\x07";
  out.add({value_of("text"), value_of(number + '\0')});
  out.add({value_of(""), value_of("xy")});
  out.finish();
  CHECK(out.shards() == 1);
  const std::string config =
      R"({"column_encodings": ["uint16", "str"], "column_names": ["a", "b"], )"
      R"("column_sizes": [2, null], "compression": null, "format": "mds", "hashes": [], )"
      R"("size_limit": 67108864, "version": 2})";
  std::string shard{"\2\0\0\0\xc8\0\0\0\xd2\0\0\0\xd8\0\0\0", 16};
  REQUIRE(config.size() == 0xc8 - 16);
  shard += config;
  shard.append("\4\0\0\0\7\0text", 10).append("\0\0\0\0xy", 6);
  CHECK(test::folder::read(dir.path("shard.00000.mds")) == shard);
  CHECK(test::folder::read(dir.path("index.json")) ==
        R"({"shards": [{"column_encodings": ["uint16", "str"], "column_names": ["a", "b"], )"
        R"("column_sizes": [2, null], "compression": null, "format": "mds", "hashes": [], )"
        R"("raw_data": {"basename": "shard.00000.mds", "bytes": 216, "hashes": {}}, )"
        R"("samples": 2, "size_limit": 67108864, "version": 2, "zip_data": null}], "version": 2})");
}

TEST_CASE("blobs that were packed are read as they were", "[blob][promise:exact-14]") {
  const some_blobs all = many_blobs();
  for (const std::uint64_t bytes : {1U, 400U, 1000U, 1U << 26U}) {
    const test::folder dir;
    const ps::pack_mds_options options{
        .blob = "z \"\\\n\u00e4", .label = "y", .key = "k", .shard_bytes = bytes};
    CHECK(ps::pack_mds(all, dir.path(), options) == 40);
    const ps::mds_shards shards{dir.path(), {.blob = options.blob, .label = "y"}};
    REQUIRE(shards.size() == 40);
    CHECK(shards.shards() == (bytes == 1 ? 40 : bytes == 1U << 26U ? 1 : shards.shards()));
    for (const auto& entry : std::filesystem::directory_iterator{dir.path()}) {
      const bool is_shard = entry.path().extension() == ".mds";
      if (is_shard && bytes > 1) CHECK(entry.file_size() <= bytes);
    }
    ps::blob_buffer buffer;
    for (std::uint64_t i = 0; i < 40; ++i) {
      CHECK(test::content_of(shards, i) == all.blobs[i]);
      CHECK(shards.label(i) == static_cast<std::int64_t>(i) - 3);
      CHECK(test::text_of(shards.column(i, "k", buffer)) == "blob " + std::to_string(i));
    }
  }
  const test::folder none;
  CHECK(ps::pack_mds(some_blobs{}, none.path()) == 0);
  CHECK(ps::mds_shards{none.path()}.size() == 0);
}

TEST_CASE("what is left of a failed packing is no data set, and is packed over",
          "[blob][fault:files-8]") {
  const test::folder dir;
  some_blobs all = many_blobs();
  all.broken = 30;
  CHECK_THROWS_AS(ps::pack_mds(all, dir.path(), {.shard_bytes = 400}), std::runtime_error);
  for (const std::string& name : files_in(dir.path())) CHECK(test::has(name, "shard.0000"));
  CHECK(files_in(dir.path()).size() > 2);
  (void)error_of<ps::file_unreadable>([&] { ps::mds_shards{dir.path()}; });
  all.broken = ~std::uint64_t{0};
  CHECK(ps::pack_mds(all, dir.path()) == 40);
  CHECK(test::content_of(ps::mds_shards{dir.path()}, 39) == all.blobs[39]);
}

TEST_CASE("MDS shards are written over no other ones", "[blob][fault:files-8]") {
  const test::folder dir;
  (void)ps::pack_mds(many_blobs(), dir.path());
  const std::string before = test::folder::read(dir.path("shard.00000.mds"));
  const auto refused =
      error_of<ps::folder_error>([&] { (void)ps::pack_mds(some_blobs{{"x"}}, dir.path()); });
  CHECK(refused.expected() == "a folder without an index.json");
  CHECK(test::folder::read(dir.path("shard.00000.mds")) == before);
  CHECK(error_of<ps::folder_error>([&] {
          (void)ps::pack_mds(some_blobs{}, dir.path("index.json"));
        }).path() == dir.path("index.json"));
}

TEST_CASE("a shard that can't be written is an error with its path", "[blob][fault:files-8]") {
  const test::folder dir;
  dir.make("shard.00000.mds/in the way");
  const auto problem =
      error_of<ps::report_error>([&] { (void)ps::pack_mds(many_blobs(), dir.path()); });
  CHECK(problem.path() == dir.path("shard.00000.mds"));
  CHECK(files_in(dir.path()) == std::vector<std::string>{"shard.00000.mds"});
}

TEST_CASE("columns and values that are not written are refused by name", "[blob]") {
  const test::folder dir;
  const auto columns = [&](const std::vector<ps::mds_column>& of, std::uint64_t bytes = 100) {
    return error_of<ps::option_error>([&] { ps::mds_writer(dir.path(), of, bytes); });
  };
  CHECK(columns({}).option() == "columns");
  CHECK(columns({{"a", "pkl"}}).option() == "columns");
  CHECK(test::has(columns({{"a", "float8"}}).what(), "'a' is 'float8', which is not written"));
  CHECK(
      test::has(columns({{"a", "int"}, {"b", "int"}, {"a", "str"}}).what(), "'a' is there twice"));
  CHECK(columns({{"a", "str"}}, 0).option() == "shard_bytes");
  CHECK(columns({{"a", "str"}}, std::uint64_t{1} << 32U).option() == "shard_bytes");
  CHECK(!std::filesystem::exists(dir.path()));

  ps::mds_writer out{dir.path(), {{"a", "ndarray:uint16:3"}, {"b", "str"}}};
  CHECK_THROWS_AS(out.add({value_of("123456")}), std::invalid_argument);
  CHECK_THROWS_WITH(out.add({value_of("12345"), value_of("x")}),
                    "mds_writer: found 5 bytes for column 'a', whose values have 6");
  out.add({value_of("123456"), value_of("x")});
  out.finish();
  CHECK(ps::mds_shards{dir.path()}.size() == 1);
}
