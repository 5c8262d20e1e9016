// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/tar/tar_shards.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ext/blob/archives.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using ps::detail::shard_index_path;
using ps::detail::shard_listing;
using ps::detail::shard_selection;
using ps::detail::split_component;
using test::archive;
using test::error_of;

namespace {

const shard_selection jpg_and_cls{{"jpg"}, "cls", false};
const shard_selection complete_ones{{"jpg"}, "cls", true};

// Returns the number of samples that are marked as incomplete.
std::ptrdiff_t skipped_of(shard_listing& listing) {
  return std::count_if(listing.samples().begin(), listing.samples().end(), [](const auto& one) {
    return one.extension == ps::detail::shard_sample::skipped;
  });
}

// Returns the index that penstock writes for an archive.
std::string index_of(std::string_view bytes) {
  const test::archive_in_memory source{bytes};
  shard_listing listing{"in memory", complete_ones};
  ps::detail::shard_index_text text;
  ps::detail::list_by_headers(source, listing, &text);
  return text.problem().empty() ? text.text(listing.lines()) : std::string{text.problem()};
}

// Returns the error message for an archive with this index.
std::string index_problem(std::string_view bytes, std::string_view index) {
  const test::archive_in_memory source{bytes};
  shard_listing listing{"in memory", complete_ones};
  return ps::detail::list_by_index(source, index, listing);
}

std::string two_samples() {
  return archive{}.add("a/1.jpg", "picture").add("a/1.cls", "3").add("a/2.jpg", "").ended();
}

}  // namespace

TEST_CASE("a path in a shard is a sample's key and an extension", "[blob]") {
  const auto split = [](std::string_view path) {
    const auto name = split_component(path);
    return std::string{name.key} + '|' + std::string{name.extension} +
           (name.is_hidden() ? " hidden" : "") + (name.has_dot ? "" : " none");
  };
  CHECK(split("1.jpg") == "1|jpg");
  CHECK(split("a.b/1.seg.png") == "a.b/1|seg.png");
  CHECK(split("./a/1.jpg") == "./a/1|jpg");
  CHECK(split("1.") == "1|");
  CHECK(split(".jpg") == "|jpg hidden");
  CHECK(split("a/.jpg") == "a/|jpg hidden");
  CHECK(split("README") == "READM|README none");
  CHECK(split("a.b/README") == "a.b/READM|a.b/README none");
  CHECK(split("a/b") == "a/|a/b hidden none");
  CHECK(split("") == "| hidden none");
}

TEST_CASE("an index is next to its shard, with the name that wds2idx uses", "[blob]") {
  CHECK(shard_index_path("train-000.tar", "") == "train-000.idx");
  CHECK(shard_index_path("a.b/train-000.tar.old", "") == "a.b/train-000.idx");
  CHECK(shard_index_path("/d/train", "") == "/d/train.idx");
  CHECK(shard_index_path("/d/.train.tar", "") == "/d/.train.idx");
  CHECK(shard_index_path("a.b/train.tar", "there") == "there/train.idx");
  CHECK(shard_index_path("train.tar", "/there/") == "/there/train.idx");
}

// The expected texts were produced by NVIDIA's wds2idx.py for the same archives, using listings of
// GNU tar.
TEST_CASE("an index has the bytes that wds2idx writes", "[blob]") {
  CHECK(index_of(two_samples()) ==
        "v1.2 2\njpg 512 7 a/1.jpg cls 1536 1 a/1.cls\njpg 2560 0 a/2.jpg\n");
  archive made;
  made.add("d/", "", '5').add("d/1.jpg", std::string(600, 'x')).add("d/link", "", '2');
  made.add("d/1.seg.png", "y").add("d/.hidden.jpg", "z").add("d/1.cls", "1").add("READ", "me");
  made.add("REAX", "me").add("2.JPG", "x");
  CHECK(index_of(made.ended()) ==
        "v1.2 3\n"
        "jpg 1024 600 d/1.jpg seg.png 3072 1 d/1.seg.png cls 5120 1 d/1.cls\n"
        "READ 6144 2 READ REAX 7168 2 REAX\n"
        "JPG 8192 1 2.JPG\n");
  const std::string longest = std::string(120, 'd') + "/1.jpg";
  CHECK(index_of(archive{}.long_name(longest).add(longest.substr(0, 100), "x").ended()) ==
        "v1.2 1\njpg 1536 1 " + longest + "\n");
}

TEST_CASE("an index that cannot represent its shard is not written", "[blob]") {
  CHECK(index_of(archive{}.ended()) == "the archive has no sample");
  CHECK(index_of(archive{}.add("README.", "").add(".x", "").ended()) == "v1.2 1\n 512 0 README.\n");
  for (const std::string_view name : {"a b.jpg", "a.j\tpg", "a\nb.jpg", "a\rb.jpg"}) {
    CHECK(index_of(archive{}.add(name, "").ended()) ==
          "a path contains a space, which the format cannot represent");
  }
  CHECK(index_of(archive{}.pax("path", "b.jpg").add("a.jpg", "").ended()) ==
        "an extended header contradicts a header");
}

TEST_CASE("an index that is read back lists the same files as the headers", "[blob]") {
  archive made;
  for (int i = 0; i < 200; ++i) {
    made.add("d/" + std::to_string(i) + ".jpg", std::string(static_cast<std::size_t>(i * 7), 'x'));
    if (i % 5 != 0) made.add("d/" + std::to_string(i) + ".cls", std::to_string(i));
    if (i % 7 == 0) made.add("NOTE", "").add("d/.hidden.jpg", "");
  }
  const std::string bytes = made.ended();
  const test::archive_in_memory source{bytes};
  shard_listing right{"", complete_ones};
  ps::detail::list_by_headers(source, right, nullptr);
  shard_listing listing{"", complete_ones};
  REQUIRE(ps::detail::list_by_index(source, index_of(bytes), listing) == "");
  REQUIRE(listing.samples().size() == 200);
  CHECK(skipped_of(listing) == 40);
  CHECK(skipped_of(right) == 40);
  CHECK(listing.keys() == right.keys());
  CHECK(listing.lines() == right.lines());
  REQUIRE(right.samples().size() == 200);
  for (std::size_t i = 0; i < 200; ++i) {
    const auto& one = listing.samples()[i];
    const auto& other = right.samples()[i];
    CHECK(one.blob_block == other.blob_block);
    CHECK(one.blob_size == other.blob_size);
    CHECK(one.label_block == other.label_block);
    CHECK(one.label_size == other.label_size);
    CHECK(one.key_begin == other.key_begin);
  }
}

TEST_CASE("an index with an invalid text is rejected", "[blob][fault:files-5]") {
  const std::string bytes = two_samples();
  const std::string right = index_of(bytes);
  REQUIRE(index_problem(bytes, right).empty());
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = right;
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return index_problem(bytes, text.replace(at, from.size(), to));
  };
  const std::string version = "it is not an index of version v1.2, as written by DALI's wds2idx";
  CHECK(index_problem(bytes, "") == version);
  CHECK(with("v1.2", "v1.1") == version);
  CHECK(with("v1.2 2", "v1.2") == version);
  CHECK(with(" 2\n", " two\n") == "its first line does not give the number of samples");
  CHECK(with(" 2\n", " 2 \n") == "its first line does not give the number of samples");
  CHECK(with(" 2\n", " 1\n") == "it has more lines than its first line says");
  CHECK(with(" 2\n", " 3\n") == "it ends too early");
  CHECK(index_problem(bytes, "v1.2 0\n") == "it names no file");
  for (std::size_t i = 7; i + 1 < right.size(); ++i) {
    CAPTURE(i);
    CHECK_FALSE(index_problem(bytes, right.substr(0, i)).empty());
  }
  CHECK(index_problem(bytes, right.substr(0, right.size() - 1)) == "it ends too early");
  CHECK(with("512 7", "512 -7") == "an offset or a size is not a number");
  CHECK(with("512 7", "512  7") == "an offset or a size is not a number");
  CHECK(with("512 7", "+512 7") == "an offset or a size is not a number");
  CHECK(with("a/1.jpg cls", "a/1.jpg\tcls") == "a path is invalid");
  CHECK(with("a/1.jpg", "a/1.png") == "a path does not have the stated extension");
  CHECK(with("a/1.jpg", ".jpg") == "a path does not have the stated extension");
  CHECK(with("jpg 512 7 a/1.jpg", " 512 7 ") == "a path does not have the stated extension");
  const std::string place = "a file has an impossible offset: the index belongs to another archive";
  CHECK(with("1536", "1537") == place);
  CHECK(with("1536", "1024") == place);
  CHECK(with("512", "0") == place);
  CHECK(with("2560 0", "2560 99999") == place);
  CHECK(with("2560", "25600") == place);
  CHECK(with("2560 0", "2560 18446744073709551615") == place);
  CHECK(with("2560", "18446744073709551104") == place);
  CHECK(
      index_problem(bytes, "v1.2 3\njpg 512 7 a/1.jpg\ncls 1536 1 a/1.cls\njpg 2560 0 a/2.jpg\n") ==
      "its lines do not describe samples");
  CHECK(index_problem(bytes, "v1.2 1\njpg 512 7 a/1.jpg cls 1536 1 a/1.cls jpg 2560 0 a/2.jpg\n") ==
        "its lines do not describe samples");
}

TEST_CASE("an index that ends before the archive does, or elsewhere, is rejected",
          "[blob][fault:files-5]") {
  const std::string bytes = two_samples();
  archive longer;
  longer.add("a/1.jpg", "picture").add("a/1.cls", "3").add("a/2.jpg", "");
  CHECK(index_problem(archive{longer}.add("d/", "", '5').add(".x", "").ended(), index_of(bytes))
            .empty());
  CHECK(index_problem(archive{longer}.add("a/3.jpg", "").ended(), index_of(bytes)) ==
        "the archive has more files: the index belongs to an older archive");
  (void)error_of<ps::file_corrupt>([&] {
    (void)index_problem(archive{}.add("0.jpg", std::string(9000, 'x')).ended(), index_of(bytes));
  });
}

TEST_CASE("a sample without a requested file is named", "[blob][fault:files-4]") {
  const auto list = [](const std::string& bytes, const shard_selection& selection) {
    const test::archive_in_memory source{bytes};
    shard_listing listing{"shard.tar", selection};
    ps::detail::list_by_headers(source, listing, nullptr);
    return skipped_of(listing);
  };
  const std::string bytes = archive{}
                                .add("1.jpg", "")
                                .add("1.cls", "")
                                .add("2.cls", "")
                                .add("2.json", "")
                                .add("3.jpg", "")
                                .add("3.cls", "")
                                .ended();
  const auto no_blob = error_of<ps::missing_component>([&] { list(bytes, jpg_and_cls); });
  CHECK(no_blob.path() == "shard.tar");
  CHECK(no_blob.offset() == 1024);
  CHECK(no_blob.key() == "2");
  CHECK(no_blob.expected() == "a file .jpg for the sample '2'");
  CHECK_THAT(no_blob.found(),
             Catch::Matchers::StartsWith(".cls, .json: store the files of a sample"));
  CHECK(list(bytes, complete_ones) == 1);
  const auto no_label =
      error_of<ps::missing_component>([&] { list(bytes, {{"json", "cls"}, "jpg", false}); });
  CHECK(no_label.key() == "2");
  CHECK(no_label.expected() == "a file .jpg for the sample '2'");
  const auto last = error_of<ps::missing_component>(
      [&] { list(archive{}.add("1.jpg", "").ended(), {{"png", "webp"}, "", false}); });
  CHECK(last.expected() == "a file .png or .webp for the sample '1'");
  // The files of a sample must be adjacent.
  const std::string sorted =
      archive{}.add("1.cls", "").add("2.cls", "").add("1.jpg", "").add("2.jpg", "").ended();
  CHECK(error_of<ps::missing_component>([&] { list(sorted, jpg_and_cls); }).key() == "1");
}

TEST_CASE("the error for a sample without an image mentions links in the archive", "[blob]") {
  const auto found = [](const archive& made) {
    const std::string bytes = made.ended();
    const test::archive_in_memory source{bytes};
    const shard_selection selection{{"jpg"}, "cls", false};
    shard_listing listing{"shard.tar", selection};
    const auto problem = error_of<ps::missing_component>(
        [&] { ps::detail::list_by_headers(source, listing, nullptr); });
    CHECK(problem.key() == "1");
    return problem.found();
  };
  const char kind = GENERATE('1', '2');  // hard and symbolic links
  for (const auto& made :
       {archive{}.add("1.jpg", "", kind).add("1.cls", "5"),
        archive{}.add("1.cls", "5").add("1.jpg", "", kind),
        archive{}.add("0.jpg", "x").add("0.cls", "1").add("1.jpg", "", kind).add("1.cls", "5")}) {
    archive more = made;
    more.add("2.png", "", kind).add("2.jpg", "x").add("2.cls", "5");
    CHECK_THAT(found(more),
               Catch::Matchers::StartsWith(
                   ".cls, and links in the archive, which have no contents: pack the"));
  }
  CHECK(test::lacks(found(archive{}.add("1.cls", "5")), "link"));
}

TEST_CASE("a sample with two files of one extension is named", "[blob][fault:files-4]") {
  const auto list = [](const std::string& bytes, const shard_selection& selection) {
    const test::archive_in_memory source{bytes};
    shard_listing listing{"shard.tar", selection};
    ps::detail::list_by_headers(source, listing, nullptr);
    return listing.samples();
  };
  const std::string twice = archive{}.add("1.jpg", "a").add("1.cls", "").add("1.JPG", "b").ended();
  const auto blob = error_of<ps::duplicate_component>([&] { list(twice, jpg_and_cls); });
  CHECK(blob.offset() == 1536);
  CHECK(blob.key() == "1");
  CHECK(blob.expected() == "one file .JPG for the sample '1'");
  const std::string labels = archive{}.add("1.jpg", "a").add("1.cls", "").add("1.cls", "b").ended();
  CHECK(error_of<ps::duplicate_component>([&] { list(labels, complete_ones); }).offset() == 1536);
  // Duplicates are detected even for an extension that was not requested.
  const std::string others = archive{}.add("1.x", "").add("1.jpg", "").add("1.X", "").ended();
  const auto other = error_of<ps::duplicate_component>([&] { list(others, {{"jpg"}, "", false}); });
  CHECK(other.offset() == 1024);
  CHECK_THAT(other.found(), Catch::Matchers::StartsWith("a second, after the one at byte 0: "));
  // The blob has the first of the requested extensions, regardless of the order of the files.
  for (const auto& bytes : {archive{}.add("1.png", "aa").add("1.jpg", "b").ended(),
                            archive{}.add("1.jpg", "b").add("1.png", "aa").ended()}) {
    const auto samples = list(bytes, {{"jpg", "png"}, "", false});
    REQUIRE(samples.size() == 1);
    CHECK(samples[0].blob_size == 1);
    CHECK(samples[0].extension == 0);
  }
}
