// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/mds/mds_index.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ext/blob/mds_files.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::error_of;
using test::mds_entry;

namespace {

ps::detail::mds_index read_index(std::string_view text) {
  return ps::detail::mds_index_reader{text, "index.json"}.read();
}

std::string rejected_index(std::string_view text) {
  const auto problem = error_of<ps::file_format_error>([&] { (void)read_index(text); });
  CHECK(problem.offset() <= text.size());
  CHECK(problem.path() == "index.json");
  return problem.what();
}

std::string rejected_entry(const mds_entry& entry) {
  return rejected_index(test::mds_index({entry}));
}

}  // namespace

TEST_CASE("checksums equal those of Python's hashlib and xxhash for any split of the bytes",
          "[blob][fault:files-7]") {
  const auto sum = [](std::string_view name, std::string_view text, std::size_t piece) {
    auto summer = ps::detail::mds_hasher::of(name);
    REQUIRE(summer);
    for (; !text.empty(); text.remove_prefix((std::min)(piece, text.size()))) {
      summer->add(std::as_bytes(std::span{text.substr(0, piece)}));
    }
    return summer->digits();
  };
  const std::string million(1'000'000, 'a');
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{333'333}, million.size()}) {
    CHECK(sum("xxh64", million, piece) == "dc483aaa9b4fdc40");
    CHECK(sum("sha1", million, piece) == "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    CHECK(sum("sha256", million, piece) ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
  CHECK(sum("xxh64", "", 1) == "ef46db3751d8e999");
  CHECK(sum("xxh64", "abc", 1) == "44bc2cf5ad770999");
  CHECK(sum("sha1", "", 1) == "da39a3ee5e6b4b0d3255bfef95601890afd80709");
  CHECK_FALSE(ps::detail::mds_hasher::of("md5"));
}

TEST_CASE("an index of MDS shards lists their files and columns", "[blob]") {
  const auto index = read_index(test::mds_index(
      {{.name = "a/shard.00000.mds", .bytes = 5, .samples = 7},
       {.name = "b.mds", .bytes = 6, .samples = 0, .zipped = R"({"basename": "z", "bytes": 1})"}}));
  REQUIRE(index.shards.size() == 2);
  CHECK(index.shards[0].name == "a/shard.00000.mds");
  CHECK(index.shards[0].bytes == 5);
  CHECK(index.shards[0].samples == 7);
  CHECK(index.shards[0].zipped.empty());
  CHECK(index.shards[0].compression.empty());
  CHECK(index.shards[1].zipped == "z");
  CHECK(index.shards[1].compression == "zstd:7");
  CHECK(index.columns == std::vector<ps::mds_column>{{"blob", "bytes", 0}, {"label", "int", 8}});
  CHECK(read_index(R"({"version": 2, "new": [1], "shards": []})").shards.empty());
}

TEST_CASE("an invalid index of MDS shards is rejected with the missing member",
          "[blob][fault:files-6]") {
  CHECK(test::has(rejected_index(""), "expected JSON"));
  CHECK(test::has(rejected_index("[]"), "a member \"shards\""));
  CHECK(test::has(rejected_index("{}"), "a member \"shards\""));
  CHECK(test::has(rejected_index(R"({"shards": []})"), "a member \"version\""));
  CHECK(
      test::has(rejected_index(R"({"shards": [], "version": 3})"), "expected version 2, found 3"));
  CHECK(test::has(rejected_index(R"({"shards": [], "version": 2, "version": 2})"),
                  "a second \"version\""));
  CHECK(test::has(rejected_index(R"({"shards": [7], "version": 2})"), "an array of objects"));
  CHECK(test::has(rejected_index(R"({"shards": {"a": {}}, "version": 2})"),
                  "a member \"column_encodings\""));
  CHECK(test::has(rejected_index(R"({"shards": [{}], "version": 2})"),
                  "a member \"column_encodings\""));
  CHECK(test::has(rejected_index(R"({"shards": [], "version": 2} x)"), "expected end of input"));
  CHECK(test::has(rejected_entry({.format = "json"}), "the only supported format, found 'json'"));
  CHECK(test::has(rejected_entry({.names = "\"blob\""}), "found 2, 2 and 1"));
  CHECK(test::has(rejected_entry({.encodings = "", .names = "", .sizes = ""}), "0, 0 and 0"));
  CHECK(test::has(rejected_entry({.names = "\"blob\", \"blob\""}), "blob twice"));
  CHECK(test::has(rejected_entry({.sizes = "null, 4"}), "values of 8 bytes"));
  CHECK(test::has(rejected_entry({.sizes = "9, 8"}), "in column 'blob', which is bytes, found 9"));
  CHECK(test::has(rejected_entry({.samples = std::uint64_t{1} << 32U}), "less than 2^32 samples"));
  mds_entry other;
  other.names = "\"blob\", \"other\"";
  CHECK(test::has(rejected_index(test::mds_index({{}, other})), "the columns of the first shard"));
}

TEST_CASE("an index of MDS shards reports the checksums of its files or their absence", "[blob]") {
  const std::string none = R"("hashes": {})";
  const std::string text = test::mds_index({{.name = "a.mds", .bytes = 5, .samples = 7}});
  const auto with = [&](const std::string& checksums) {
    std::string other = text;
    return other.replace(other.find(none), none.size(), R"("hashes": )" + checksums);
  };
  CHECK(read_index(text).shards.at(0).checksums.empty());
  CHECK(read_index(with("null")).shards.at(0).checksums.empty());
  const auto checksums = read_index(with(R"({"sha1": "ab", "other": ""})")).shards.at(0).checksums;
  CHECK(checksums == std::vector<ps::detail::mds_checksum>{{"other", ""}, {"sha1", "ab"}});
  for (const std::string wrong : {"[]", "7", "\"sha1\"", R"({"sha1": 7})", R"({"sha1": null})"}) {
    CAPTURE(wrong);
    (void)rejected_index(with(wrong));
  }
}

TEST_CASE("no name in an index of MDS shards leads out of the folder", "[blob][fault:files-6]") {
  for (const std::string name : {"", "/etc/passwd", "..", "../x.mds", "a/../../x", "a//b", "./a",
                                 "a/", "a/.", "a\\u0000b"}) {
    CAPTURE(name);
    CHECK(test::has(rejected_entry({.name = name}), "a file in the folder, or below it"));
    CHECK(test::has(rejected_entry({.zipped = R"({"basename": ")" + name + R"(", "bytes": 1})"}),
                    "a file in the folder, or below it"));
  }
  for (const std::string name : {"a..mds", "...", "a/b/c"}) {
    CHECK(read_index(test::mds_index({{.name = name}})).shards.at(0).name == name);
  }
}

TEST_CASE("unknown members of an MDS index occupy no memory",
          "[blob][large][promise:bounded-9][fault:files-6]") {
  std::string ones = "[1";
  std::string members = R"({"": 1)";
  for (std::size_t i = 0; i < 200'000; ++i) {
    ones += ",1";
    members += ",\"" + std::to_string(i) + "\":1";
  }
  ones += ']';
  members += '}';
  const std::string inner = members.substr(1, members.size() - 2);
  const auto peak_of = [](const std::string& text, const auto& read) {
    const std::size_t before = test::live_bytes;
    test::peak_bytes = before;
    read(text);
    return test::peak_bytes.load() - before;
  };
  // The parser needs its own copy of the text.
  const auto whole = [](const std::string& text) { CHECK(read_index(text).shards.size() == 1); };
  const std::string entry = test::mds_entry{.name = "a.mds"}.text();
  for (const std::string& more : {R"("x": )" + ones, R"("x": )" + members, inner}) {
    const std::string at_root = R"({"version": 2, )" + more + R"(, "shards": [)" + entry + "]}";
    CHECK(peak_of(at_root, whole) < at_root.size() + 100'000);
    const std::string in_shard =
        R"({"version": 2, "shards": [{)" + more + ", " + entry.substr(1) + "]}";
    CHECK(peak_of(in_shard, whole) < in_shard.size() + 100'000);
  }
  const auto rejected = [](const std::string& text) { (void)rejected_index(text); };
  for (const std::string& wrong :
       {ones, R"({"version": 2, "shards": )" + ones + '}',
        R"({"version": 2, "shards": )" + members + '}',
        R"({"version": 2, "shards": [{"column_names": )" + ones + "}]}",
        R"({"version": 2, "shards": [{"raw_data": {"hashes": )" + members + "}}]}",
        R"({"version": 2, "shards": [{"raw_data": {"x": )" + ones + "}}]}"}) {
    CAPTURE(wrong.substr(0, 60));
    CHECK(peak_of(wrong, rejected) < wrong.size() + 400'000);
  }
}
