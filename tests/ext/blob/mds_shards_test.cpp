// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/mds/mds_shards.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "ext/blob/folders.hpp"
#include "ext/blob/mds_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::error_of;
using test::mds_entry;
using test::mds_little;
using test::mds_sample;

namespace {

const ps::mds_shards_options with_label{.label = "label"};

// A folder of MDS shards with the given samples.
struct mds_folder : test::folder {
  explicit mds_folder(const std::vector<std::vector<std::string>>& samples,
                      const mds_entry& like = {}) {
    std::vector<mds_entry> entries;
    for (const auto& of : samples) {
      mds_entry one = like;
      one.name = "shard." + std::to_string(entries.size()) + ".mds";
      add_shard(one, test::mds_shard(of), of.size());
      entries.push_back(one);
    }
    add("index.json", test::mds_index(entries));
  }

  void add_shard(mds_entry& entry, const std::string& bytes, std::uint64_t samples) const {
    entry.bytes = bytes.size();
    entry.samples = samples;
    add(entry.name, bytes);
  }
};

// Returns the exception that is thrown for a folder with a single shard of these bytes.
template <class E>
E rejected(const std::string& bytes, std::uint64_t samples, const mds_entry& like = {}) {
  const test::folder dir;
  mds_entry entry = like;
  entry.bytes = bytes.size();
  entry.samples = samples;
  dir.add(entry.name, bytes);
  dir.add("index.json", test::mds_index({entry}));
  return error_of<E>([&] { ps::mds_shards{dir.path(), with_label}; });
}

}  // namespace

TEST_CASE("samples of MDS shards are numbered through, each with its blob and label",
          "[blob][promise:exact-14]") {
  const mds_folder dir{{{mds_sample("one", 1), mds_sample("", -2)},
                        {},
                        {mds_sample(std::string(70'000, 'x'), 1'000'000'000'000)}}};
  for (const std::size_t max_open : {0U, 1U, 512U}) {
    const ps::mds_shards shards{dir.path(), {.label = "label", .max_open = max_open}};
    REQUIRE(shards.size() == 3);
    CHECK(shards.shards() == 3);
    CHECK(test::labels_of(shards) == std::vector<std::int64_t>{1, -2, 1'000'000'000'000});
    CHECK(test::content_of(shards, 0) == "one");
    CHECK(test::content_of(shards, 1).empty());
    CHECK(test::content_of(shards, 2) == std::string(70'000, 'x'));
    CHECK(shards.key(1) == dir.path("shard.0.mds") + ":1");
    CHECK(shards.key(2) == dir.path("shard.2.mds") + ":0");
    for (std::uint64_t i = 0; i < 5; ++i) shards.prefetch(i);
    CHECK(error_of<ps::index_error>([&] { (void)test::content_of(shards, 3); }).size() == 3);
    CHECK(error_of<ps::index_error>([&] { (void)shards.label(3); }).size() == 3);
    CHECK(error_of<ps::index_error>([&] { (void)shards.key(3); }).size() == 3);
  }
  CHECK(test::labels_of(ps::mds_shards{dir.path()}) == std::vector<std::int64_t>{0, 0, 0});
}

TEST_CASE("each column of an MDS sample is read by its name", "[blob][promise:exact-14]") {
  const mds_entry like{.encodings = "\"str\", \"ndarray:uint16:2,2\", \"jpeg\", \"float32\"",
                       .names = "\"a\", \"b\", \"c\", \"d\"",
                       .sizes = "null, 8, null, 4"};
  const std::string sample = mds_little(3) + mds_little(5) + "key" + "arrayxyz" + "photo" + "real";
  const mds_folder dir{{{sample}}, like};
  const ps::mds_shards shards{dir.path(), {.blob = "c"}};
  ps::blob_buffer buffer;
  CHECK(test::text_of(shards.bytes(0, buffer)) == "photo");
  CHECK(test::text_of(shards.column(0, "a", buffer)) == "key");
  CHECK(test::text_of(shards.column(0, "b", buffer)) == "arrayxyz");
  CHECK(test::text_of(shards.column(0, "d", buffer)) == "real");
  const std::vector<ps::mds_column> columns{
      {"a", "str", 0}, {"b", "ndarray:uint16:2,2", 8}, {"c", "jpeg", 0}, {"d", "float32", 4}};
  CHECK(std::vector(shards.columns().begin(), shards.columns().end()) == columns);
  const auto wrong = [&](const ps::mds_shards_options& options) {
    return error_of<ps::option_error>([&] { ps::mds_shards(dir.path(), options); });
  };
  CHECK(wrong({}).option() == "blob");
  CHECK(test::has(wrong({}).what(), "name one of the columns a (str), b (ndarray:uint16:2,2), c"));
  CHECK(wrong({.blob = "e"}).option() == "blob");
  CHECK(wrong({.blob = "a", .label = "e"}).option() == "label");
  CHECK(
      test::has(wrong({.blob = "a", .label = "d"}).what(), "is float32, which is not an integer"));
  CHECK(error_of<ps::option_error>([&] { (void)shards.column(0, "e", buffer); }).option() ==
        "name");
}

TEST_CASE("labels are integers of any encoding", "[blob]") {
  struct stored {
    std::string encoding, size, bytes;
    std::int64_t value;
  };
  const std::vector<stored> all{
      {"int", "8", mds_little(~std::uint64_t{4}, 8), -5},
      {"int8", "1", "\x80", -128},
      {"uint8", "1", "\x80", 128},
      {"int16", "2", mds_little(0xfffe, 2), -2},
      {"uint16", "2", mds_little(0xfffe, 2), 0xfffe},
      {"int32", "4", mds_little(0x8000'0000U, 4), -2147483648LL},
      {"uint32", "4", mds_little(0x8000'0000U, 4), 2147483648LL},
      {"int64", "8", mds_little(std::uint64_t{1} << 63U, 8), INT64_MIN},
      {"uint64", "8", mds_little(7, 8), 7},
      {"str_int", "null", "-17", -17},
  };
  for (const stored& one : all) {
    CAPTURE(one.encoding);
    const bool differs = one.size == "null";
    const mds_entry like{.encodings = '"' + one.encoding + "\", \"bytes\"",
                         .names = "\"label\", \"x\"",
                         .sizes = one.size + ", null"};
    const auto sample = [&](const std::string& bytes) {
      return (differs ? mds_little(bytes.size()) : "") + mds_little(1) + bytes + "b";
    };
    const mds_folder dir{{{sample(one.bytes)}}, like};
    const ps::mds_shards shards{dir.path(), {.blob = "x", .label = "label"}};
    CHECK(shards.label(0) == one.value);
    CHECK(test::content_of(shards, 0) == "b");
    if (!differs) continue;
    for (const std::string& wrong : {std::string{}, std::string{"1.5"}, std::string(65, '0')}) {
      const mds_folder other{{{sample(wrong)}}, like};
      const ps::mds_shards none{other.path(), {.blob = "x", .label = "label"}};
      CHECK(error_of<ps::file_format_error>([&] { (void)none.label(0); }).offset() == 22);
    }
  }
  const mds_entry like{.encodings = "\"uint64\"", .names = "\"label\"", .sizes = "8"};
  const mds_folder dir{{{mds_little(std::uint64_t{1} << 63U, 8)}}, like};
  const ps::mds_shards large{dir.path(), {.blob = "label", .label = "label"}};
  (void)error_of<ps::file_format_error>([&] { (void)large.label(0); });
}

TEST_CASE("pickled columns are rejected when they are requested", "[blob][fault:files-6]") {
  const mds_entry like{
      .encodings = "\"pkl\", \"str\"", .names = "\"odd\", \"text\"", .sizes = "null, null"};
  const mds_folder dir{{{mds_little(3) + mds_little(4) + "oddtext"}}, like};
  const ps::mds_shards shards{dir.path(), {.blob = "text"}};
  CHECK(test::content_of(shards, 0) == "text");
  ps::blob_buffer buffer;
  const auto requested = error_of<ps::option_error>([&] { (void)shards.column(0, "odd", buffer); });
  CHECK(test::has(requested.what(), "column 'odd' is pkl, and a pickle can run arbitrary code"));
  CHECK(test::has(requested.what(), "write the column as bytes, a number, json or ndarray"));
  const auto opened = error_of<ps::option_error>(
      [&] { ps::mds_shards(dir.path(), ps::mds_shards_options{.blob = "odd"}); });
  CHECK(opened.option() == "blob");
}

TEST_CASE("columns of an unknown encoding are read as bytes", "[blob]") {
  for (const std::string encoding : {"jpeg_array", "list[png]", "ndarray:float128", "new"}) {
    const mds_entry like{.encodings = '"' + encoding + "\", \"str\", \"newer\"",
                         .names = "\"odd\", \"text\", \"fixed\"",
                         .sizes = "null, null, 3"};
    const mds_folder dir{{{mds_little(3) + mds_little(4) + "oddtextfix"}}, like};
    const ps::mds_shards shards{dir.path(), {.blob = "odd"}};
    CHECK(test::content_of(shards, 0) == "odd");
    ps::blob_buffer buffer;
    const auto bytes = shards.column(0, "fixed", buffer);
    CHECK(std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()} == "fix");
    CHECK(error_of<ps::option_error>([&] {
            ps::mds_shards(dir.path(), ps::mds_shards_options{.blob = "text", .label = "odd"});
          }).option() == "label");
  }
}

TEST_CASE("MDS shards without checksums report it", "[blob][fault:files-7]") {
  const std::vector<std::string> sample{mds_sample("one", 1)};
  const mds_folder dir{{sample, sample}};
  const ps::mds_shards shards{dir.path()};
  REQUIRE(shards.warnings().size() == 1);
  CHECK(test::has(
      shards.warnings()[0],
      dir.path() + "/index.json has no xxh64, sha1 or sha256 checksum for 2 of 2 shards"));
  CHECK(test::has(shards.warnings()[0], "write the shards with hashes, and read them with verify"));
  const test::folder other;
  test::write_mds(other, sample, {.hashes = {"xxh64"}});
  CHECK(ps::mds_shards{other.path()}.warnings().empty());
}

TEST_CASE("an MDS shard that is named twice is rejected, or read as the option specifies",
          "[blob][fault:files-6]") {
  const mds_folder dir{{{mds_sample("one", 1)}, {mds_sample("two", 2)}}};
  mds_entry first;
  first.name = "shard.0.mds";
  first.samples = 1;
  first.bytes = test::mds_shard({mds_sample("one", 1)}).size();
  mds_entry second = first;
  second.name = "shard.1.mds";
  mds_entry other = first;
  other.bytes = 7;  // the size of the shard with the same name in the other folder
  const auto read = [&](ps::duplicate_action action) {
    const ps::mds_shards shards{dir.path(), {.label = "label", .duplicates = action}};
    CHECK(shards.warnings().size() == (shards.shards() == 3 ? 1 : 2));
    return test::labels_of(shards);
  };
  const auto rejected = [&] {
    return error_of<ps::duplicate_entry>([&] { read(ps::duplicate_action::reject); });
  };
  const std::string index = test::mds_index({other, second, first});
  dir.add("index.json", index);
  const auto twice = rejected();
  CHECK(twice.path() == dir.path() + "/index.json");
  CHECK(twice.expected() == "the shard shard.0.mds once");
  CHECK(index.substr(twice.offset()) == first.text() + "], \"version\": 2}");
  CHECK(index.substr(twice.first_offset()).starts_with(other.text()));
  CHECK(read(ps::duplicate_action::take_last) == std::vector<std::int64_t>{2, 1});
  dir.add("index.json", test::mds_index({first, second, first}));
  CHECK(read(ps::duplicate_action::keep) == std::vector<std::int64_t>{1, 2, 1});
  // Lists the same compressed file under two names, and then through a link.
  const std::string zipped = R"({"basename": "shard.zstd", "bytes": 1, "hashes": {}})";
  first.zipped = zipped;
  second.zipped = zipped;
  dir.add("index.json", test::mds_index({first, second}));
  CHECK(rejected().expected() == "the shard shard.zstd once");
  first.zipped = "null";
  second.zipped = "null";
  mds_entry linked = first;
  linked.name = "linked.mds";
  dir.link("shard.0.mds", linked.name);
  dir.add("index.json", test::mds_index({first, second, linked}));
  const auto link = rejected();
  CHECK(link.path() == dir.path() + "/linked.mds");
  CHECK(link.first_path() == dir.path() + "/shard.0.mds");
  CHECK(read(ps::duplicate_action::take_last) == std::vector<std::int64_t>{2, 1});
}

TEST_CASE("a truncated or damaged MDS shard reports the offset", "[blob][fault:files-6]") {
  const std::string right = test::mds_shard({mds_sample("one", 1), mds_sample("two", 2)});
  for (std::size_t bytes = 0; bytes < 16; ++bytes) {
    const auto cut = rejected<ps::file_truncated>(right.substr(0, bytes), 2);
    CHECK(cut.offset() == bytes);
  }
  for (std::size_t bytes = 16; bytes < right.size(); ++bytes) {
    const auto cut = rejected<ps::file_corrupt>(right.substr(0, bytes), 2);
    CHECK(cut.offset() <= 12);
  }
  CHECK(rejected<ps::file_corrupt>(right + "x", 2).offset() == 12);
  CHECK(rejected<ps::length_mismatch>(right, 3).found() == "2");
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string changed = right;
    return changed.replace(at, bytes.size(), bytes);
  };
  CHECK(rejected<ps::length_mismatch>(with(0, mds_little(0xffff'ffffU)), 2).offset() == 0);
  CHECK(rejected<ps::file_truncated>(with(0, mds_little(0xffff'ffffU)), 0xffff'ffffU).offset() ==
        right.size());
  CHECK(rejected<ps::file_corrupt>(with(4, mds_little(15)), 2).offset() == 4);
  CHECK(rejected<ps::file_corrupt>(with(8, mds_little(17)), 2).offset() == 8);
  CHECK(rejected<ps::file_corrupt>(with(8, mds_little(0xffff'ffffU)), 2).offset() == 8);
  CHECK(rejected<ps::file_corrupt>(with(12, mds_little(40)), 2).offset() == 12);
}

TEST_CASE("a sample of an MDS shard that its columns do not fill is rejected",
          "[blob][fault:files-6]") {
  const std::string right = mds_sample("one", 1);
  const std::vector<std::string> wrong{
      right + "x",                                 // longer than its columns
      right.substr(0, right.size() - 1),           // shorter than its columns
      mds_little(4) + right.substr(4),             // a column size that is too large by one
      mds_little(0xffff'ffffU) + right.substr(4),  // a size beyond the file
      "",
      "x",
      mds_little(0),
      mds_little(0) + "1234567",
  };
  for (const std::string& sample : wrong) {
    CAPTURE(sample.size());
    const mds_folder dir{{{right, sample}}};
    const ps::mds_shards shards{dir.path(), with_label};
    CHECK(test::content_of(shards, 0) == "one");
    CHECK(shards.label(0) == 1);
    const std::uint64_t begin = 4 * 4 + 2 + right.size();
    CHECK(error_of<ps::file_corrupt>([&] { (void)test::content_of(shards, 1); }).offset() == begin);
    CHECK(error_of<ps::file_corrupt>([&] { (void)shards.label(1); }).offset() == begin);
  }
  // A column size at which the sum of all sizes wraps around to the size of the sample.
  const mds_entry wrapping{.encodings = "\"new\", \"bytes\"",
                           .names = "\"a\", \"b\"",
                           .sizes = "18446744073709551608, null"};
  const mds_folder round{{{mds_little(12) + "four"}}, wrapping};
  const ps::mds_shards none{round.path()};
  CHECK(test::has(error_of<ps::file_corrupt>([&] { (void)test::content_of(none, 0); }).found(),
                  "column 'a', from byte 4 to 18446744073709551612 of it"));

  const mds_folder dir{{{right}}};
  const ps::mds_shards small{dir.path(), {.max_bytes = right.size() - 1}};
  CHECK(test::has(
      error_of<ps::file_format_error>([&] { (void)test::content_of(small, 0); }).expected(),
      "(max_bytes)"));
}

TEST_CASE("an MDS shard whose length differs from its index is rejected", "[blob][fault:files-6]") {
  const mds_folder dir{{{mds_sample("one", 1)}}};
  dir.add("shard.0.mds", test::mds_shard({mds_sample("one more", 1)}));
  const auto longer = error_of<ps::length_mismatch>([&] { ps::mds_shards{dir.path()}; });
  CHECK(longer.path() == dir.path("shard.0.mds"));
  CHECK(longer.found() == "34");
  std::filesystem::remove(dir.path("shard.0.mds"));
  CHECK(error_of<ps::file_unreadable>([&] { ps::mds_shards{dir.path()}; }).path() ==
        dir.path("shard.0.mds"));
  std::filesystem::remove(dir.path("index.json"));
  CHECK(error_of<ps::file_unreadable>([&] { ps::mds_shards{dir.path()}; }).path() ==
        dir.path("index.json"));
}

TEST_CASE("a compressed MDS shard is rejected with a remedy, and read when it is unpacked",
          "[blob][fault:files-6]") {
  const test::folder dir;
  mds_entry entry{.zipped = R"({"basename": "shard.00000.mds.zstd", "bytes": 9, "hashes": {}})"};
  const std::string bytes = test::mds_shard({mds_sample("one", 1)});
  entry.bytes = bytes.size();
  entry.samples = 1;
  dir.add("index.json", test::mds_index({entry}));
  dir.add("shard.00000.mds.zstd", "compressed");
  const auto zipped = error_of<ps::file_format_error>([&] { ps::mds_shards{dir.path()}; });
  CHECK(zipped.path() == dir.path("shard.00000.mds.zstd"));
  CHECK(test::has(zipped.found(), "or unpack it to " + dir.path("shard.00000.mds")));
  CHECK(test::has(zipped.found(), "zstd:7: give compression = zstd{}"));
  dir.add("shard.00000.mds", bytes);
  CHECK(test::content_of(ps::mds_shards{dir.path()}, 0) == "one");
}

TEST_CASE("an MDS shard that is written to or replaced is detected, or the old file stays in use",
          "[blob][fault:files-6]") {
  const mds_folder dir{{{mds_sample("one", 1)}}};
  const bool stays_open = GENERATE(true, false);
  const ps::mds_shards shards{dir.path(),
                              {.label = "label", .max_open = stays_open ? std::size_t{1} : 0}};
  SECTION("it is replaced") {
    dir.add("new", test::mds_shard({mds_sample("two", 1)}));
    std::filesystem::rename(dir.path("new"), dir.path("shard.0.mds"));
    if (stays_open) {
      CHECK(test::content_of(shards, 0) == "one");
    } else {
      (void)error_of<ps::file_changed>([&] { (void)test::content_of(shards, 0); });
    }
  }
  SECTION("it is written to") {
    dir.add("shard.0.mds", test::mds_shard({mds_sample("three", 1)}));
    (void)error_of<ps::file_changed>([&] { (void)test::content_of(shards, 0); });
    (void)error_of<ps::file_changed>([&] { (void)shards.label(0); });
  }
}
