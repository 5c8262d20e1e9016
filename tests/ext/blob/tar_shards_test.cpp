// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/tar/tar_shards.hpp>

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ext/blob/archives.hpp"
#include "ext/blob/folders.hpp"
#include "support/catch.hpp"
#include "support/has.hpp"
#include "support/limits.hpp"

namespace ps = penstock;
using test::archive;
using test::error_of;

namespace {

// A folder of shards with three consecutively numbered samples each.
struct shard_folder : test::folder {
  explicit shard_folder(int shards = 2) {
    make("");
    for (int shard = 0; shard < shards; ++shard) {
      archive made;
      for (int i = 3 * shard; i < 3 * shard + 3; ++i) {
        const std::string key = "n/" + std::to_string(i);
        made.add(key + ".jpg", "picture " + std::to_string(i));
        made.add(key + ".cls", std::to_string(100 + i) + '\n');
      }
      add(std::to_string(shard) + ".tar", made.ended());
      paths.push_back(path(std::to_string(shard) + ".tar"));
    }
  }
  std::vector<std::string> paths;
};

const std::string kept_index =
    "v1.2 3\n"
    "jpg 512 9 n/0.jpg cls 1536 4 n/0.cls\n"
    "jpg 2560 9 n/1.jpg cls 3584 4 n/1.cls\n"
    "jpg 4608 9 n/2.jpg cls 5632 4 n/2.cls\n";

}  // namespace

TEST_CASE("samples are numbered consecutively across tar shards", "[blob]") {
  const shard_folder dir{3};
  const ps::tar_shards shards{dir.path("{0..2}.tar")};
  REQUIRE(shards.size() == 9);
  CHECK(shards.shards() == 3);
  CHECK(shards.skipped() == 0);
  for (std::uint64_t i = 0; i < 9; ++i) {
    CHECK(test::content_of(shards, i) == "picture " + std::to_string(i));
    CHECK(shards.label(i) == static_cast<std::int64_t>(100 + i));
    CHECK(shards.key(i) ==
          dir.paths[static_cast<std::size_t>(i / 3)] + "/n/" + std::to_string(i) + ".jpg");
    shards.prefetch(i);
  }
  ps::blob_buffer buffer;
  CHECK(error_of<ps::index_error>([&] { (void)shards.bytes(9, buffer); }).index() == 9);
  CHECK(error_of<ps::index_error>([&] { (void)shards.label(9); }).size() == 9);
  CHECK(error_of<ps::index_error>([&] { (void)shards.key(~std::uint64_t{0}); }).size() == 9);
  shards.prefetch(9);
  const ps::tar_shards by_list{{dir.paths[1], dir.paths[0]}, {.blob = {"CLS"}, .label = ""}};
  REQUIRE(by_list.size() == 6);
  CHECK(test::content_of(by_list, 0) == "103\n");
  CHECK(by_list.label(0) == 0);
  CHECK(by_list.key(5) == dir.paths[0] + "/n/2.cls");
}

TEST_CASE("a shard without samples does not end the numbers", "[blob]") {
  const shard_folder dir;
  std::vector<std::string> none;
  for (const char* const name : {"a.tar", "b.tar", "c.tar", "d.tar"}) {
    dir.add(name, std::string(10240, '\0'));
    none.push_back(dir.path(name));
  }
  const ps::tar_shards shards{{none[0], dir.paths[0], none[1], none[2], dir.paths[1], none[3]}};
  CHECK(test::labels_of(shards) == std::vector<std::int64_t>{100, 101, 102, 103, 104, 105});
  const ps::tar_shards empty{none};
  CHECK(empty.size() == 0);
  REQUIRE(empty.warnings().size() == 1);
  CHECK(empty.warnings()[0] ==
        none[0] + " and the shards after it: no sample, and 0 samples omitted by skip_incomplete");
}

TEST_CASE("extensions count in letters of any case, and long names as all others", "[blob]") {
  const shard_folder dir;
  const std::string longest = std::string(90, 'd') + '/' + std::string(80, 'f');
  archive made;
  made.add("A.JPG", "1").add("A.Cls", " -7 ");
  made.long_name(longest + ".jpeg").add(longest.substr(0, 100), "22");
  made.long_name(longest + ".cls").add(longest.substr(0, 100), "+8");
  made.pax("path", "\xc3\xa4.jpg").add("?.jpg", "333").add("\xc3\xa4.cls", "9\r\n");
  made.pax("path", "odd.jpg").add("x", "4444").pax("path", "odd.cls").add("y", "10");
  dir.add("odd.tar", made.ended());
  const ps::tar_shards shards{dir.path("odd.tar")};
  REQUIRE(shards.size() == 4);
  CHECK(shards.label(0) == -7);
  CHECK(error_of<ps::file_format_error>([&] { (void)shards.label(1); }).found() == "'+8'");
  CHECK(shards.label(2) == 9);
  CHECK(shards.label(3) == 10);
  CHECK(test::content_of(shards, 0) == "1");
  CHECK(test::content_of(shards, 1) == "22");
  CHECK(test::content_of(shards, 2) == "333");
  CHECK(test::content_of(shards, 3) == "4444");
  CHECK(shards.key(1) == dir.path("odd.tar") + '/' + longest + ".jpeg");
}

TEST_CASE("a label that is not a number is reported when it is requested", "[blob]") {
  const shard_folder dir;
  archive made;
  for (const std::string_view label : {"", " \n", "1 2", "x", "9223372036854775808", "1.5"}) {
    made.add(std::to_string(made.bytes.size()) + ".jpg", "");
    made.add(std::to_string(made.bytes.size() - 512) + ".cls", label);
  }
  made.add("long.jpg", "").add("long.cls", std::string(65, ' '));
  made.add("huge.jpg", "").add("huge.cls", std::string(70'000, '1'));
  dir.add("bad.tar", made.ended());
  const ps::tar_shards shards{dir.path("bad.tar")};
  REQUIRE(shards.size() == 8);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto problem = error_of<ps::file_format_error>([&] { (void)shards.label(i); });
    CHECK(problem.path() == dir.path("bad.tar"));
    CHECK(problem.expected() == "a label, a 64-bit integer in decimal digits");
  }
  CHECK(error_of<ps::file_format_error>([&] { (void)shards.label(2); }).found() == "'1 2'");
  CHECK(error_of<ps::file_format_error>([&] { (void)shards.label(7); }).found() ==
        "65535 bytes or more");
}

TEST_CASE("samples that are incomplete are named, or left out and counted", "[blob]") {
  const shard_folder dir;
  dir.add("a.tar", archive{}.add("1.jpg", "").add("2.jpg", "").add("2.cls", "2").ended());
  CHECK(error_of<ps::missing_component>([&] { ps::tar_shards{dir.path("a.tar")}; }).key() == "1");
  const ps::tar_shards shards{dir.path("a.tar"), {.skip_incomplete = true}};
  CHECK(shards.size() == 1);
  CHECK(shards.skipped() == 1);
  CHECK(shards.label(0) == 2);
}

TEST_CASE("a file without a dot does not split a sample", "[blob]") {
  const shard_folder dir;
  const std::string bytes = archive{}
                                .add("a.jpg", "a")
                                .add("a.cls", "1")
                                .add("b.jpg", "b")
                                .add("README", "text")
                                .add("b.cls", "2")
                                .ended();
  dir.add("a.tar", bytes);
  for (int pass = 0; pass < 2; ++pass) {
    const ps::tar_shards shards{dir.path("a.tar"), {.index = ps::shard_index::keep}};
    CHECK(shards.listed_from_index() == static_cast<std::size_t>(pass));
    CHECK(test::labels_of(shards) == std::vector<std::int64_t>{1, 2});
  }
}

TEST_CASE("two samples with one key are rejected with both places", "[blob][fault:files-4]") {
  const test::folder dir;
  dir.make("");
  const auto rejected = [&](const std::vector<std::string>& names,
                            const ps::tar_shards_options& options = {.label = ""}) {
    std::vector<std::string> paths;
    for (const std::string& name : names) paths.push_back(dir.path(name));
    return error_of<ps::duplicate_entry>([&] { ps::tar_shards{paths, options}; });
  };
  dir.add(
      "parted.tar",
      archive{}.add("0.jpg", "a").add("1.jpg", "b").add("0.png", "c").add("1.png", "d").ended());
  const auto parted = rejected({"parted.tar"});
  CHECK(parted.path() == dir.path("parted.tar"));
  CHECK(parted.offset() == 2048);
  CHECK(parted.first_path() == dir.path("parted.tar"));
  CHECK(parted.first_offset() == 0);
  CHECK(parted.expected() == "the sample '0' once");
  CHECK(test::has(parted.found(), ".duplicates = duplicate_action::take_last"));
  dir.add("a.tar", archive{}.add("n/1.jpg", "a").add("n/2.jpg", "b").ended());
  dir.add("b.tar", archive{}.add("n/3.jpg", "a").add("./n//1.jpg", "b").ended());
  const auto across = rejected({"a.tar", "b.tar"});
  CHECK(across.path() == dir.path("b.tar"));
  CHECK(across.offset() == 1024);
  CHECK(across.first_path() == dir.path("a.tar"));
  CHECK(across.first_offset() == 0);
  // GNU tar extracts absolute paths relative to the current folder.
  dir.add("absolute.tar", archive{}.add("/1.jpg", "a").add("2.jpg", "b").add("1.jpg", "c").ended());
  CHECK(rejected({"absolute.tar"}).offset() == 2048);
  // Files of a sample that are not adjacent are an error even if incomplete samples are skipped.
  dir.add(
      "halves.tar",
      archive{}.add("0.jpg", "a").add("1.jpg", "b").add("1.cls", "1").add("0.cls", "0").ended());
  const auto halves = rejected({"halves.tar"}, {.skip_incomplete = true});
  CHECK(halves.expected() == "the sample '0' once");
  CHECK(halves.offset() == 3072);
}

TEST_CASE("a shard that is named twice is rejected under any name", "[blob][fault:files-4]") {
  const shard_folder dir;
  dir.link("0.tar", "linked.tar");
  dir.add("none.tar", std::string(1024, '\0'));
  dir.make("there");
  for (const auto& names :
       std::vector<std::pair<std::string, std::string>>{{"0.tar", "0.tar"},
                                                        {"0.tar", "there/../0.tar"},
                                                        {"0.tar", "linked.tar"},
                                                        {"none.tar", "./none.tar"}}) {
    const std::string first = dir.path(names.first);
    const std::string again = dir.path(names.second);
    const auto problem =
        error_of<ps::duplicate_entry>([&] { ps::tar_shards{{first, dir.paths[1], again}}; });
    CHECK(problem.path() == again);
    CHECK(problem.first_path() == first);
    CHECK(problem.expected() == "each file once");
  }
}

TEST_CASE("of samples with the same key the option keeps the last or each", "[blob]") {
  using texts = std::vector<std::string>;
  const test::folder dir;
  dir.make("");
  const auto read = [&](const texts& names, ps::duplicate_action action, bool indexed = false) {
    texts paths;
    for (const std::string& name : names) paths.push_back(dir.path(name));
    const ps::tar_shards shards{
        paths,
        {.duplicates = action, .index = indexed ? ps::shard_index::keep : ps::shard_index::ignore}};
    texts found{std::to_string(shards.replaced())};
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      found.push_back(test::content_of(shards, i) + std::to_string(shards.label(i)));
    }
    CHECK(shards.warnings().size() == (shards.replaced() == 0 ? 0 : 1));
    return found;
  };
  // In this archive, sample 1 occurs twice, sample 2 has two images, and the files of sample 3
  // are not adjacent.
  dir.add("a.tar", archive{}
                       .add("1.jpg", "a")
                       .add("1.cls", "1")
                       .add("2.jpg", "b")
                       .add("2.cls", "2")
                       .add("3.cls", "3")
                       .add("1.JPG", "A")
                       .add("1.cls", "4")
                       .add("3.jpg", "c")
                       .add("./2.jpg", "B")
                       .ended());
  dir.add("b.tar", archive{}.add("3.jpg", "d").add("3.cls", "5").ended());
  for (const bool indexed : {false, true, true}) {
    CHECK(read({"a.tar"}, ps::duplicate_action::take_last, indexed) ==
          texts{"3", "A4", "c3", "B2"});
  }
  CHECK(read({"a.tar", "b.tar"}, ps::duplicate_action::take_last) == texts{"4", "A4", "B2", "d5"});
  CHECK(read({"a.tar", "b.tar", "a.tar"}, ps::duplicate_action::take_last) ==
        texts{"10", "A4", "c3", "B2"});
  dir.add("c.tar", archive{}.add("3.jpg", "e").add("3.cls", "6").ended());
  CHECK(read({"b.tar", "c.tar", "b.tar"}, ps::duplicate_action::keep) ==
        texts{"0", "d5", "e6", "d5"});
}

TEST_CASE("hidden files and files of the shard are skipped and counted", "[blob][fault:files-25]") {
  const test::folder dir;
  dir.make("");
  dir.add("a.tar", archive{}
                       .add("__meta__/info.json", "{}")
                       .add("./__meta__", "")
                       .add("0.jpg", "a")
                       .add("._0.jpg", "Mac OS X")
                       .add("0.cls", "1")
                       .add("__MACOSX/0.jpg", "x")
                       .add(".ipynb_checkpoints/0-checkpoint.jpg", "x")
                       .add("d/Thumbs.db", "x")
                       .add("./d/__x__.jpg", "b")
                       .add("./d/__x__.cls", "2")
                       .ended());
  for (int pass = 0; pass < 2; ++pass) {
    const ps::tar_shards shards{dir.path("a.tar"), {.index = ps::shard_index::keep}};
    CHECK(shards.listed_from_index() == static_cast<std::size_t>(pass));
    CHECK(test::labels_of(shards) == std::vector<std::int64_t>{1, 2});
    CHECK(shards.skipped() == 0);
    CHECK(shards.hidden() == (pass == 0 ? 6 : 5));  // an index does not list ._0.jpg
    REQUIRE(shards.warnings().size() == 1);
    CHECK(test::has(shards.warnings()[0], "such as __meta__/info.json"));
  }
  const shard_folder plain;
  CHECK(ps::tar_shards{plain.paths}.warnings().empty());
}

TEST_CASE("a file that is not an index is never overwritten", "[blob]") {
  const shard_folder dir;
  const std::string bytes = archive{}.add("a.jpg", "a").add("a.cls", "1").ended();
  const auto problem_of = [&](const std::string& name) {
    const ps::tar_shards shards{dir.path(name), {.index = ps::shard_index::keep}};
    CHECK(shards.size() == 1);
    return shards.index_problems().empty() ? std::string{} : shards.index_problems().back();
  };
  dir.add("shard.idx", bytes);  // the archive itself has the name of the index
  CHECK(test::has(problem_of("shard.idx"), "not an index of tar shards"));
  CHECK(test::folder::read(dir.path("shard.idx")) == bytes);
  dir.add("pile.tar", bytes);
  dir.add("pile.idx", "MMIDIDX and more");
  CHECK(test::has(problem_of("pile.tar"), "not an index of tar shards"));
  CHECK(test::folder::read(dir.path("pile.idx")) == "MMIDIDX and more");
  dir.add("empty.tar", bytes);
  dir.add("empty.idx", "");
  static_cast<void>(problem_of("empty.tar"));
  CHECK(test::has(test::folder::read(dir.path("empty.idx")), "v1.2 1"));
  dir.add("pipe.tar", bytes);
  REQUIRE(::mkfifo(dir.path("pipe.idx").c_str(), 0600) == 0);
  CHECK(test::has(problem_of("pipe.tar"), "not an index of tar shards"));
}

TEST_CASE("a blob above the limit is rejected before memory is taken", "[blob]") {
  const shard_folder dir;
  const ps::tar_shards shards{dir.paths[0], {.max_bytes = 8}};
  ps::blob_buffer buffer;
  const auto problem = error_of<ps::file_format_error>([&] { (void)shards.bytes(1, buffer); });
  CHECK(problem.offset() == 2560);
  CHECK(problem.expected() == "at most 8 bytes (max_bytes)");
  CHECK(problem.found() == "9");
  CHECK(buffer.capacity() == 0);
  CHECK(shards.label(1) == 101);
}

TEST_CASE("options of tar shards that mean nothing are rejected", "[blob]") {
  const shard_folder dir;
  const auto rejected = [&](const ps::tar_shards_options& options) {
    return error_of<ps::option_error>([&] { ps::tar_shards(dir.paths, options); }).option();
  };
  CHECK(rejected({.blob = {}}) == "blob");
  CHECK(rejected({.blob = std::vector<std::string>(256, "x")}) == "blob");
  CHECK(rejected({.blob = {"jpg", ".png"}}) == "blob");
  CHECK(rejected({.label = ".cls"}) == "label");
  CHECK(error_of<ps::option_error>([&] { ps::tar_shards(std::vector<std::string>{}); }).option() ==
        "shards");
}

TEST_CASE("a shard that can't be opened or read is named", "[blob]") {
  const shard_folder dir;
  const auto missing =
      error_of<ps::file_unreadable>([&] { ps::tar_shards{{dir.paths[0], dir.path("none")}}; });
  CHECK(missing.path() == dir.path("none"));
  CHECK(error_of<ps::file_unreadable>([&] { ps::tar_shards{dir.path()}; }).found() == "a folder");
  REQUIRE(::mkfifo(dir.path("pipe").c_str(), 0600) == 0);
  CHECK(error_of<ps::file_unreadable>([&] { ps::tar_shards{dir.path("pipe")}; }).found() ==
        "a pipe, socket or device");
  dir.add("gz.tar", "\x1f\x8b\x08" + std::string(600, 'x'));
  CHECK(test::has(
      error_of<ps::file_format_error>([&] { ps::tar_shards{dir.path("gz.tar")}; }).found(),
      "gunzip"));
}

TEST_CASE("an index is stored next to the shard and reused", "[blob]") {
  const shard_folder dir;
  const ps::tar_shards first{dir.paths[0], {.index = ps::shard_index::keep}};
  CHECK(first.listed_from_index() == 0);
  CHECK(first.index_problems().empty());
  CHECK(test::folder::read(dir.path("0.idx")) == kept_index);
  for (const auto index : {ps::shard_index::keep, ps::shard_index::use}) {
    const ps::tar_shards again{dir.paths, {.index = index}};
    CHECK(again.listed_from_index() == 1);
    CHECK(test::keys_of(again) == test::keys_of(ps::tar_shards{dir.paths}));
    CHECK(test::labels_of(again) == std::vector<std::int64_t>{100, 101, 102, 103, 104, 105});
    if (index == ps::shard_index::keep) std::filesystem::remove(dir.path("1.idx"));
  }
  // The mode `use` does not write an index.
  CHECK_FALSE(std::filesystem::exists(dir.path("1.idx")));
  CHECK(ps::tar_shards{dir.paths[0], {.index = ps::shard_index::ignore}}.listed_from_index() == 0);
  dir.make("there");
  const ps::tar_shards there{dir.paths[1],
                             {.index = ps::shard_index::keep, .index_folder = dir.path("there")}};
  CHECK(std::filesystem::exists(dir.path("there/1.idx")));
}

TEST_CASE("an index that does not match is rewritten or not used", "[blob][fault:files-5]") {
  const shard_folder dir;
  const auto opened = [&](ps::shard_index index) {
    ps::tar_shards shards{dir.paths[0], {.index = index}};
    CHECK(test::labels_of(shards) == std::vector<std::int64_t>{100, 101, 102});
    return shards;
  };
  SECTION("it is damaged") {
    dir.add("0.idx", "v1.2 3\n");
    const auto shards = opened(ps::shard_index::use);
    CHECK(shards.listed_from_index() == 0);
    CHECK(shards.index_problems() ==
          std::vector<std::string>{dir.path("0.idx") + ": not used: it ends too early"});
  }
  SECTION("it omits files of a sample") {
    dir.add("0.idx", "v1.2 1\njpg 512 9 n/0.jpg\n");
    CHECK(test::has(opened(ps::shard_index::use).index_problems().at(0), "more files"));
  }
  SECTION("it is older than the archive") {
    dir.add("0.idx", kept_index);
    dir.age("0.tar", 1'000'000'000, 5);
    dir.age("0.idx", 1'000'000'000, 5);
    CHECK(opened(ps::shard_index::use).listed_from_index() == 1);
    dir.age("0.idx", 1'000'000'000, 4);
    const auto shards = opened(ps::shard_index::use);
    CHECK(shards.listed_from_index() == 0);
    CHECK(test::has(shards.index_problems().at(0), "older than the archive"));
    dir.age("0.idx", 999'999'999, 999);
    CHECK(opened(ps::shard_index::use).listed_from_index() == 0);
  }
  SECTION("it is a folder") {
    dir.make("0.idx");
    CHECK(test::has(opened(ps::shard_index::use).index_problems().at(0), "not a regular file"));
    CHECK(test::has(opened(ps::shard_index::keep).index_problems().at(0),
                    "; " + dir.path("0.idx") + ": not written: "));
  }
  SECTION("it is a pipe without a writer") {
    REQUIRE(::mkfifo(dir.path("0.idx").c_str(), 0600) == 0);
    CHECK(test::has(opened(ps::shard_index::use).index_problems().at(0), "not a regular file"));
    return;
  }
  CHECK(opened(ps::shard_index::keep).listed_from_index() == 0);
  if (std::filesystem::is_directory(dir.path("0.idx"))) return;
  CHECK(test::folder::read(dir.path("0.idx")) == kept_index);
  const auto again = opened(ps::shard_index::use);
  CHECK(again.listed_from_index() == 1);
  CHECK(again.index_problems().empty());
}

TEST_CASE("an index that was kept is older than a change of the archive", "[blob]") {
  const shard_folder dir;
  dir.age("0.tar", 1'000'000'000, 5);
  const ps::tar_shards kept{dir.paths[0], {.index = ps::shard_index::keep}};
  dir.age("0.tar", 1'000'000'000, 6);
  CHECK(ps::tar_shards{dir.paths[0]}.listed_from_index() == 0);
}

TEST_CASE("a wrong index causes an error and never returns other bytes", "[blob][fault:files-5]") {
  const shard_folder dir;
  archive made;
  archive other;
  for (int i = 0; i < 10; ++i) {
    const bool is_odd = i == 5;
    made.add(std::to_string(i) + ".jpg", "x").add(std::to_string(i) + ".cls", "1");
    other.add(is_odd ? "a.jpg" : std::to_string(i) + ".jpg", "x");
    other.add(std::to_string(i) + ".cls", is_odd ? "12" : "1");
  }
  dir.add("many.tar", made.ended());
  const ps::tar_shards right{dir.path("many.tar"), {.index = ps::shard_index::keep}};
  dir.add("many.tar", other.ended());
  dir.age("many.tar", 1'000'000'000);
  const ps::tar_shards shards{dir.path("many.tar")};
  REQUIRE(shards.listed_from_index() == 1);
  CHECK(test::content_of(shards, 4) == "x");
  const auto blob = error_of<ps::file_format_error>([&] { (void)test::content_of(shards, 5); });
  CHECK(blob.path() == dir.path("many.tar"));
  CHECK(blob.offset() == 5 * 2048);
  CHECK(blob.expected() == "the header of '5.jpg', 1 bytes, according to the shard's index");
  CHECK(
      test::has(blob.found(), "the header of 'a.jpg': remove the index, which belongs to another"));
  const auto label = error_of<ps::file_format_error>([&] { (void)shards.label(5); });
  CHECK(label.offset() == 5 * 2048 + 1024);
  CHECK(test::has(label.found(), "a file of 2 bytes"));
}

TEST_CASE("an index with offsets that follow no header fails at the read",
          "[blob][fault:files-5]") {
  // wds2idx computes these wrong offsets if there are extended headers between the files.
  const shard_folder dir;
  dir.add("pax.tar", archive{}.pax("mtime", "1.5").add("1.jpg", "x").add("1.cls", "3").ended());
  dir.add("pax.idx", "v1.2 1\njpg 1024 1 1.jpg cls 2560 1 1.cls\n");
  const ps::tar_shards shards{dir.path("pax.tar")};
  REQUIRE(shards.listed_from_index() == 1);
  const auto problem = error_of<ps::file_format_error>([&] { (void)test::content_of(shards, 0); });
  CHECK(problem.path() == dir.path("pax.tar"));
  CHECK(problem.offset() == 512);
  CHECK(test::has(problem.found(), "extended headers"));
  CHECK(shards.label(0) == 3);
}

TEST_CASE("a shard that is written to or replaced is detected, or the old file stays in use",
          "[blob][fault:files-4]") {
  const shard_folder dir;
  const bool stays_open = GENERATE(true, false);
  const ps::tar_shards shards{dir.paths[0], {.max_open = stays_open ? std::size_t{1} : 0}};
  CHECK(test::content_of(shards, 1) == "picture 1");
  SECTION("it is replaced") {
    std::filesystem::rename(dir.path("1.tar"), dir.path("0.tar"));
    if (stays_open) {
      CHECK(test::content_of(shards, 1) == "picture 1");
      CHECK(shards.label(2) == 102);
    } else {
      const auto problem = error_of<ps::file_changed>([&] { (void)test::content_of(shards, 1); });
      CHECK(problem.path() == dir.paths[0]);
      CHECK(test::has(problem.found(), "another file of this name"));
    }
  }
  SECTION("it is written to") {
    dir.add("0.tar", archive{}.add("x.jpg", "").ended());
    const auto problem = error_of<ps::file_changed>([&] { (void)test::content_of(shards, 1); });
    CHECK(test::has(problem.found(), "written to since"));
    CHECK(error_of<ps::file_changed>([&] { (void)shards.label(1); }).path() == dir.paths[0]);
  }
  SECTION("only its modification time changes") {
    dir.age("0.tar", 1'000'000'000);
    CHECK(error_of<ps::file_changed>([&] { (void)shards.label(1); }).path() == dir.paths[0]);
  }
}

TEST_CASE("at most the given number of shards stay open, and all are read", "[blob]") {
  const shard_folder dir{20};
  const std::size_t before = test::open_descriptors();
  const ps::tar_shards shards{dir.paths, {.max_open = 3}};
  CHECK(test::open_descriptors() == before + 3);
  for (std::uint64_t i = 0; i < shards.size(); ++i) {
    CHECK(shards.label(i) == static_cast<std::int64_t>(100 + i));
    shards.prefetch(i);
  }
  CHECK(test::open_descriptors() == before + 3);
}

TEST_CASE("more shards than descriptors are rejected with a remedy", "[blob]") {
  const shard_folder dir{20};
  std::optional<test::descriptor_limit> few{test::open_descriptors() + 6};
  const auto problem = error_of<ps::file_unreadable>(
      [&] { ps::tar_shards(dir.paths, ps::tar_shards_options{.threads = 1}); });
  const ps::tar_shards some{dir.paths, {.threads = 1, .max_open = 3}};
  few.reset();
  CHECK(problem.found() == "Too many open files: lower max_open");
  CHECK(some.size() == 60);
}

TEST_CASE("shards are listed alike by any number of threads, and the first error counts",
          "[blob]") {
  const shard_folder dir{40};
  const ps::tar_shards one{dir.paths, {.threads = 1}};
  for (const std::size_t threads : {std::size_t{0}, std::size_t{3}, std::size_t{100}}) {
    const ps::tar_shards all{dir.paths, {.threads = threads}};
    CHECK(test::keys_of(all) == test::keys_of(one));
    CHECK(test::labels_of(all) == test::labels_of(one));
  }
  for (const char* const gone : {"7.tar", "8.tar", "33.tar"}) {
    std::filesystem::remove(dir.path(gone));
  }
  for (int i = 0; i < 20; ++i) {
    CHECK(error_of<ps::file_unreadable>([&] { ps::tar_shards{dir.paths}; }).path() ==
          dir.path("7.tar"));
  }
}

TEST_CASE("a pattern stands for the paths of shards", "[blob]") {
  using paths = std::vector<std::string>;
  CHECK(ps::shard_paths("a.tar") == paths{"a.tar"});
  CHECK(ps::shard_paths("a-{008..011}.tar") ==
        paths{"a-008.tar", "a-009.tar", "a-010.tar", "a-011.tar"});
  CHECK(ps::shard_paths("{0..1}/{x}{9..10}") == paths{"0/{x}9", "0/{x}10", "1/{x}9", "1/{x}10"});
  CHECK(ps::shard_paths("{5..5}") == paths{"5"});
  for (const std::string_view other : {"{", "{}", "{1}", "{1..}", "{..2}", "{a..c}", "{1..2", "}{",
                                       "{-1..2}", "{1...2}", "{11111111111111111111..2}"}) {
    CHECK(ps::shard_paths(other) == paths{std::string{other}});
  }
  CHECK(ps::shard_paths("{{1..2}") == paths{"{1", "{2"});
  CHECK(error_of<ps::option_error>([] { (void)ps::shard_paths("{2..1}"); }).option() == "shards");
  CHECK(ps::shard_paths("{1..1000000}").size() == 1'000'000);
  (void)error_of<ps::option_error>([] { (void)ps::shard_paths("{0..1000000}"); });
  (void)error_of<ps::option_error>([] { (void)ps::shard_paths("{0..999}{0..1000}"); });
  (void)error_of<ps::option_error>([] { (void)ps::shard_paths("{0..999999999999999999}"); });
}

TEST_CASE("shards whose names agree up to the first dot have no index", "[blob][fault:files-5]") {
  const shard_folder dir;
  const auto one = [](const std::string& name) {
    return archive{}.add(name + ".jpg", name).add(name + ".cls", "1").ended();
  };
  dir.add("d.0.tar", one("a"));
  dir.add("d.1.tar", one("b"));
  dir.add("e.tar", one("c"));
  const std::vector<std::string> paths{dir.path("d.0.tar"), dir.path("d.1.tar"), dir.path("e.tar"),
                                       dir.path("e.tar")};
  for (const auto index : {ps::shard_index::keep, ps::shard_index::keep, ps::shard_index::use}) {
    const ps::tar_shards shards{
        paths, {.duplicates = ps::duplicate_action::keep, .index = index, .threads = 1}};
    std::vector<std::string> texts;
    ps::blob_buffer buffer;
    for (std::uint64_t i = 0; i < shards.size(); ++i) {
      const auto bytes = shards.bytes(i, buffer);
      texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    CHECK(texts == std::vector<std::string>{"a", "b", "c", "c"});
    REQUIRE(shards.index_problems().size() == 2);
    for (const std::string& problem : shards.index_problems()) {
      CHECK(test::has(problem, dir.path("d.idx") + ": not used: it would be the index of several"));
    }
    CHECK_FALSE(std::filesystem::exists(dir.path("d.idx")));
    CHECK(std::filesystem::exists(dir.path("e.idx")));
    if (index == ps::shard_index::use) CHECK(shards.listed_from_index() == 2);
  }
  const ps::tar_shards ignored{
      paths, {.duplicates = ps::duplicate_action::keep, .index = ps::shard_index::ignore}};
  CHECK(ignored.index_problems().empty());
}
