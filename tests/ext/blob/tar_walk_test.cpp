// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/tar/detail/tar_walk.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ext/blob/archives.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using ps::detail::tar_header;
using ps::detail::tar_number;
using test::archive;
using test::error_of;

namespace {

struct walked {
  std::string name;
  std::uint64_t begin;
  std::uint64_t size;
  bool is_file;
  bool is_usual;
  friend bool operator==(const walked&, const walked&) = default;
};

std::vector<walked> walk(std::string_view bytes) {
  const test::archive_in_memory source{bytes};
  ps::detail::tar_walk members{source};
  std::vector<walked> all;
  while (members.next()) {
    const ps::detail::tar_member& one = members.member();
    all.push_back({std::string{one.name}, one.begin, one.size, one.is_file, one.is_usual});
  }
  return all;
}

template <class Error>
Error walk_error(std::string_view bytes) {
  return error_of<Error>([&] { (void)walk(bytes); });
}

std::span<const std::byte> block_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

TEST_CASE("a number of a tar header is octal between blanks, or binary", "[blob]") {
  CHECK(tar_number("0000644") == 0644U);
  CHECK(tar_number("  12 ") == 10U);
  CHECK(tar_number({"17\0", 3}) == 15U);
  CHECK(tar_number({"\0\0\0", 3}) == 0U);
  CHECK(tar_number("") == 0U);
  CHECK(tar_number("777777777777") == 0777777777777U);
  CHECK_FALSE(tar_number("8"));
  CHECK_FALSE(tar_number("1x"));
  CHECK_FALSE(tar_number("1 1"));
  CHECK_FALSE(tar_number("-1"));
  CHECK(tar_number("1777777777777777777777") == ~std::uint64_t{0});
  CHECK_FALSE(tar_number("2000000000000000000000"));  // 2^64
  CHECK(tar_number({"\x80\0\0\0\0\0\0\2\0\0\0\1", 12}) == (std::uint64_t{2} << 32U) + 1);
  CHECK(tar_number("\x80\xff\xff\xff\xff\xff\xff\xff\xff") == ~std::uint64_t{0});
  CHECK_FALSE(tar_number({"\x80\1\0\0\0\0\0\0\0\0", 10}));
  CHECK_FALSE(tar_number("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"));  // -2
}

TEST_CASE("a tar header's checksum counts bytes, or signed bytes as some programs do", "[blob]") {
  std::string block = test::sealed(test::tar_header_of("\xc3\xa4", 5));
  CHECK(tar_header{block_of(block)}.sum_is_right());
  for (const std::size_t at : {std::size_t{0}, std::size_t{300}, std::size_t{511}}) {
    std::string wrong = block;
    wrong[at] ^= 1;
    CHECK_FALSE(tar_header{block_of(wrong)}.sum_is_right());
  }
  int sum = 0;
  std::memset(block.data() + 148, ' ', 8);
  for (const char c : block) sum += static_cast<signed char>(c);
  std::snprintf(block.data() + 148, 8, "%06o", static_cast<unsigned>(sum));
  CHECK(tar_header{block_of(block)}.sum_is_right());
  block[148] = 'x';
  CHECK_FALSE(tar_header{block_of(block)}.sum_is_right());
}

TEST_CASE("members are listed in order with their position", "[blob]") {
  archive made;
  made.add("a/", "", '5').add("a/1.jpg", "picture").add("a/1.cls", "3");
  made.add("a/link", "", '2').add("a/empty", "").add("a/old", "x", '\0').add("a/next", "y", '7');
  CHECK(walk(made.ended()) == std::vector<walked>{{"a/", 512, 0, false, true},
                                                  {"a/1.jpg", 1024, 7, true, true},
                                                  {"a/1.cls", 2048, 1, true, true},
                                                  {"a/link", 3072, 0, false, true},
                                                  {"a/empty", 3584, 0, true, true},
                                                  {"a/old", 4096, 1, true, true},
                                                  {"a/next", 5120, 1, true, true}});
  CHECK(walk(std::string(1024, '\0')).empty());
  CHECK(walk(std::string(512, '\0')).empty());
}

TEST_CASE("folders, links and devices have no bytes, unknown members have theirs", "[blob]") {
  archive made;
  for (const char type : {'1', '2', '3', '4', '5', '6'}) {
    made.raw(test::sealed(test::tar_header_of("none", 5000, type)));
  }
  made.raw(test::sealed(test::tar_header_of("folder/", 600, '\0')));
  made.add("unknown", "some bytes", 'Z').add("file", "1");
  const auto all = walk(made.ended());
  REQUIRE(all.size() == 9);
  for (std::size_t i = 0; i < 8; ++i) CHECK_FALSE(all[i].is_file);
  CHECK(all[7].size == 10);
  CHECK(all[8] == walked{"file", 10 * 512, 1, true, true});
}

TEST_CASE("long names are stored in a prefix, or in GNU or pax headers", "[blob]") {
  const std::string directory(120, 'd');
  const std::string longest = directory + '/' + std::string(150, 'f') + ".jpg";
  archive made;
  made.raw(test::sealed(test::tar_header_of("1.jpg", 1, '0', directory))).raw("x");
  made.long_name(longest).add(longest.substr(0, 100), "gnu");
  made.add("././@LongLink", std::string(300, 'l'), 'K').add("linked", "");
  made.pax("path", longest).add(longest.substr(0, 100), "pax");
  made.pax("path", "\xc3\xa4.jpg").add("?.jpg", "pax");
  made.add("plain", "");
  const auto all = walk(made.ended());
  REQUIRE(all.size() == 6);
  CHECK(all[0] == walked{directory + "/1.jpg", 512, 1, true, true});
  CHECK(all[1] == walked{longest, 7 * 512 - 2 * 512, 3, true, true});
  CHECK(all[2].name == "linked");
  CHECK(all[3].name == longest);
  CHECK(all[3].is_usual);
  CHECK(all[4].name == "\xc3\xa4.jpg");
  CHECK(all[4].is_usual);
  CHECK(all[5].name == "plain");
}

TEST_CASE("a global extended header applies until it is replaced", "[blob]") {
  archive made;
  made.pax("comment", "nothing", 'g').add("a", "").pax("size", "2", 'g');
  made.raw(test::sealed(test::tar_header_of("b", 0))).raw("bb").add("c", "cc");
  made.pax("size", "3").raw(test::sealed(test::tar_header_of("d", 0))).raw("ddd");
  made.pax("size", "").add("e", "e").pax("size", "", 'g').add("f", "");
  const auto all = walk(made.ended());
  REQUIRE(all.size() == 6);
  CHECK(all[0].name == "a");
  CHECK(all[0].is_usual);
  CHECK(all[1].name == "b");
  CHECK(all[1].size == 2);
  // The pax header specifies the size, although the header of b has room for it.
  CHECK_FALSE(all[1].is_usual);
  CHECK(all[2].size == 2);
  CHECK(all[2].is_usual);
  CHECK(all[3].size == 3);
  CHECK(all[4].size == 1);
  CHECK(all[5].name == "f");
  CHECK(all[5].size == 0);
}

TEST_CASE("a path for all members is rejected", "[blob][fault:files-4]") {
  archive made;
  made.add("1.jpg", "x");
  const std::size_t second = made.bytes.size();
  made.pax("path", "2.jpg", 'g').add("3.jpg", "y");
  const auto problem = walk_error<ps::file_format_error>(made.ended());
  CHECK(problem.offset() == second);
  CHECK(problem.expected() == "a global header without a path");
  CHECK(walk(archive{}.pax("path", "", 'g').add("1.jpg", "x").ended()).size() == 1);
}

TEST_CASE("a member may have at most 32 extended headers", "[blob][fault:files-4]") {
  for (const char type : {'x', 'X', 'g', 'L', 'K'}) {
    CAPTURE(type);
    archive made;
    for (std::size_t i = 0; i < 32; ++i) {
      made.add("p", type == 'L' || type == 'K' ? "long" : "6 a=b\n", type);
    }
    const std::size_t last = made.bytes.size();
    archive more = made;
    CHECK(walk(made.add("1.jpg", "x").add("2.jpg", "y").ended()).size() == 2);
    more.pax("comment", "one more", type == 'g' ? 'x' : 'g').add("1.jpg", "x");
    const auto problem = walk_error<ps::file_corrupt>(more.ended());
    CHECK(problem.offset() == last);
    CHECK(problem.expected() == "at most 32 extended headers before a member");
    CHECK(test::has(problem.found(), "more"));
  }
}

TEST_CASE("sizes are stored in binary or in pax headers", "[blob]") {
  archive made;
  std::string header = test::tar_header_of("binary", 0);
  std::memcpy(header.data() + 124, "\x80\0\0\0\0\0\0\0\0\0\2\1", 12);
  made.raw(test::sealed(header)).raw(std::string(513, 'b'));
  made.pax("size", "600").raw(test::sealed(test::tar_header_of("pax", 0)));
  made.raw(std::string(600, 'p')).add("last", "1");
  const auto all = walk(made.ended());
  REQUIRE(all.size() == 3);
  CHECK(all[0] == walked{"binary", 512, 513, true, true});
  CHECK(all[1].size == 600);
  CHECK_FALSE(all[1].is_usual);
  CHECK(all[2].name == "last");
}

TEST_CASE("two sizes of one member are rejected", "[blob][fault:files-4]") {
  for (const char* const size : {"5", "0", "600"}) {
    CAPTURE(size);
    archive made;
    made.pax("size", size).raw(test::sealed(test::tar_header_of("1.jpg", 10)));
    const auto problem = walk_error<ps::file_corrupt>(made.raw(std::string(600, 'x')).ended());
    CHECK(problem.offset() == 1024 + 124);
    CHECK(problem.expected() == "the same size of '1.jpg'");
    CHECK(test::has(problem.found(), "10 bytes in its header and " + std::string{size}));
  }
}

TEST_CASE("a member above 8 GiB is walked over", "[blob]") {
  // An archive with nine GiB of zeros between two headers.
  struct with_a_gap {
    std::string first = test::sealed([] {
      std::string header = test::tar_header_of("large", 0);
      std::memcpy(header.data() + 124, "\x80\0\0\0\0\0\0\2\x40\0\0\0", 12);
      return header;
    }());
    std::string rest = archive{}.add("after.jpg", "x").ended();
    std::string name = "gap";
    std::uint64_t begin = 512 + (std::uint64_t{9} << 30U);
    std::size_t read_at(std::uint64_t offset, std::span<std::byte> out) const {
      if (offset >= begin) return test::archive_in_memory{rest}.read_at(offset - begin, out);
      return test::archive_in_memory{first}.read_at(offset, out);
    }
    std::uint64_t size() const { return begin + rest.size(); }
    const std::string& path() const { return name; }
  };
  const with_a_gap source;
  ps::detail::tar_walk members{source};
  REQUIRE(members.next());
  CHECK(members.member().size == std::uint64_t{9} << 30U);
  CHECK(members.member().is_usual);
  REQUIRE(members.next());
  CHECK(members.member().begin == source.begin + 512);
  CHECK_FALSE(members.next());
}

TEST_CASE("a truncated archive reports the offset", "[blob][fault:files-4]") {
  archive made;
  made.add("1.jpg", std::string(1000, 'x')).add("2.jpg", "y");
  const std::string whole = made.ended();
  const auto empty = walk_error<ps::file_truncated>("");
  CHECK(empty.path() == "in memory");
  CHECK(empty.expected() == "a tar archive");
  CHECK(walk_error<ps::file_truncated>(whole.substr(0, 300)).offset() == 300);
  const auto inside = walk_error<ps::file_truncated>(whole.substr(0, 1511));
  CHECK(inside.offset() == 1511);
  CHECK(inside.expected() == "1000 bytes of '1.jpg' starting at byte 512");
  CHECK(walk_error<ps::file_truncated>(whole.substr(0, 1512)).offset() == 1512);  // the padding is
                                                                                  // missing
  const auto between = walk_error<ps::file_truncated>(made.bytes);
  CHECK(between.offset() == made.bytes.size());
  CHECK(between.expected() == "a header, or the two blocks of zeros that end an archive");
  CHECK(test::has(between.found(), "truncate -s +1024"));
  CHECK(walk(made.bytes + std::string(512, '\0')).size() == 2);
}

TEST_CASE("a damaged archive reports the offset", "[blob][fault:files-4]") {
  archive made;
  made.add("1.jpg", "x");
  const std::size_t second = made.bytes.size();
  made.add("2.jpg", "y");
  std::string bytes = made.ended();
  bytes[second + 3] = 'X';
  const auto sum = walk_error<ps::file_corrupt>(bytes);
  CHECK(sum.offset() == second);
  CHECK(sum.expected() == "a header with a valid checksum");
  CHECK(test::has(sum.found(), "damaged"));
  std::string header = test::tar_header_of("3.jpg", 0);
  header[124] = 'x';
  archive no_size;
  no_size.raw(test::sealed(header));
  CHECK(walk_error<ps::file_corrupt>(no_size.ended()).offset() == 124);
  archive none_after;
  none_after.pax("path", "x");
  CHECK(walk_error<ps::file_corrupt>(none_after.ended()).offset() == 1024);
  archive too_long;
  too_long.raw(test::sealed(test::tar_header_of("x", (1U << 20) + 1, 'L')));
  CHECK(walk_error<ps::file_corrupt>(too_long.ended()).offset() == 512);
}

TEST_CASE("an invalid extended header reports its offset", "[blob]") {
  for (const std::string_view text :
       {"x", "9", "9 ", "7 a=b\n", "5 a=b\n", "99 a=b\n", "6 a=bc", "6 abc\n", "0 a=b\n", "1 a=b\n",
        "18446744073709551616 a=b\n", "11 size=1x\n", "13 size=-10\n"}) {
    CAPTURE(text);
    const auto problem =
        walk_error<ps::file_corrupt>(archive{}.add("p", text, 'x').add("a", "").ended());
    CHECK(problem.offset() == 512);
  }
  const std::string nul{"12 path=a\0b\n", 12};
  CHECK(
      walk_error<ps::file_corrupt>(archive{}.add("p", nul, 'x').add("a", "").ended()).expected() ==
      "a path without a NUL");
  const auto second = archive{}.add("p", "6 a=b\nx", 'x').add("a", "").ended();
  CHECK(walk_error<ps::file_corrupt>(second).offset() == 518);
}

TEST_CASE("sparse files are rejected", "[blob][fault:files-4]") {
  const auto gnu = walk_error<ps::file_format_error>(
      archive{}.add("a", "").add("b", "x", 'S').add("c", "").ended());
  CHECK(gnu.offset() == 512);
  CHECK(test::has(gnu.found(), "--sparse"));
  CHECK(
      walk_error<ps::file_format_error>(archive{}.pax("GNU.sparse.major", "1").add("c", "").ended())
          .offset() == 1024);
}

TEST_CASE("compressed archives are rejected by their kind", "[blob][fault:files-4]") {
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"\x1f\x8b\x08", "gunzip"},
      {"\x28\xb5\x2f\xfd", "unzstd"},
      {"BZh9", "bunzip2"},
      {{"\xfd"
        "7zXZ\0",
        6},
       "unxz"},
      {"\x04\x22\x4d\x18", "unlz4"},
      {"PK\x03\x04", "a zip file"},
      {"hello", "a first block without the checksum of a tar header"}};
  for (const auto& [magic, found] : kinds) {
    CAPTURE(found);
    const auto problem = walk_error<ps::file_format_error>(magic + std::string(2000, 'x'));
    CHECK(problem.offset() == 0);
    CHECK(problem.expected() == "a tar archive");
    CHECK(test::has(problem.found(), found));
  }
}

TEST_CASE("a second archive is found however far after the first it is", "[blob]") {
  const std::string one = archive{}.add("a", "1").ended();
  const std::string far = one + std::string(1 << 20, '\0');
  CHECK(walk(far).size() == 1);
  CHECK_THROWS_AS(walk(far + one), ps::file_format_error);
}

TEST_CASE("a member's own extended header counts before one for all that follows it", "[blob]") {
  const auto members =
      walk(archive{}.pax("path", "b.jpg").pax("comment", "all", 'g').add("a2.jpg", "1").ended());
  REQUIRE(members.size() == 1);
  CHECK(members[0].name == "b.jpg");
}

TEST_CASE("a second archive after the end of the first is reported", "[blob][fault:files-4]") {
  const std::string one = archive{}.add("1.jpg", "x").ended();
  const auto problem = walk_error<ps::file_format_error>(one + one);
  CHECK(problem.offset() == one.size());
  CHECK(test::has(problem.found(), "two archives"));
  CHECK(walk(one + std::string(10240, '\0')).size() == 1);
}

TEST_CASE("archives of many short members and of few long ones are walked alike", "[blob]") {
  archive made;
  std::vector<walked> right;
  for (std::size_t i = 0; i < 300; ++i) {
    const std::size_t size = i % 50 == 7 ? 300'000 : i % 13;
    right.push_back({std::to_string(i), made.bytes.size() + 512, size, true, true});
    made.add(std::to_string(i), std::string(size, 'x'));
  }
  CHECK(walk(made.ended()) == right);
}

TEST_CASE("a header before a file's bytes is recognized again", "[blob]") {
  const auto foreign = [](const std::string& block, std::string_view key,
                          std::string_view extension, std::uint64_t size) {
    return ps::detail::foreign_header(block_of(block), key, extension, size);
  };
  const std::string block = test::sealed(test::tar_header_of("a/1.JPG", 7));
  CHECK(foreign(block, "a/1", "jpg", 7).empty());
  CHECK(foreign(block, std::string(97, 'x'), "jpg", 7).empty());
  CHECK(foreign(block, "x", std::string(99, 'x'), 7).empty());
  CHECK(foreign(block, "\xc3\xa4", "jpg", 7).empty());
  CHECK(foreign(block, "a/1", "\xc3\xa4", 7).empty());
  CHECK(foreign(block, "A/1", "jpg", 7) == "the header of 'a/1.JPG'");
  CHECK_FALSE(foreign(block, std::string(96, 'x'), "jpg", 7).empty());
  CHECK_FALSE(foreign(block, "a/1", "jp", 7).empty());
  CHECK_FALSE(foreign(block, "a/1", "jpgx", 7).empty());
  CHECK_FALSE(foreign(block, "a/", "jpgx", 7).empty());
  CHECK_FALSE(foreign(block, "a/1.", "pg", 7).empty());
  CHECK(foreign(block, "a/1", "jpg", 8) == "the header of a file of 7 bytes");
  CHECK(foreign(block, "a/1", "jpg", std::uint64_t{1} << 33U).empty());
  std::string damaged = block;
  damaged[5] = 'x';
  CHECK(foreign(damaged, "a/1", "jpg", 7) == "no header, or a damaged header");
  CHECK(foreign(test::sealed(test::tar_header_of("a.b", 7, '5')), "a", "b", 7) ==
        "the header of an entry that is not a file");
  const std::string split = test::sealed(test::tar_header_of("1.jpg", 7, '0', "a"));
  CHECK(foreign(split, "a/1", "jpg", 7).empty());
  CHECK_FALSE(foreign(split, "b/1", "jpg", 7).empty());
  CHECK_FALSE(foreign(split, "ax1", "jpg", 7).empty());
}
