// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/blob_list.hpp>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ext/blob/folders.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

using names = std::vector<std::string>;
using labels = std::vector<std::int64_t>;

struct photos : test::folder {
  photos() {
    add("a.jpg", "a cat");
    add("more/b.jpg", "a dog");
  }
  [[nodiscard]] ps::blob_list csv(std::string_view text,
                                  const ps::csv_options& options = {}) const {
    write(path("list.csv"), text);
    return ps::blob_list::from_csv(path("list.csv"), options);
  }
  [[nodiscard]] ps::csv_error refused(std::string_view text,
                                      const ps::csv_options& options = {}) const {
    const auto problem = error_of<ps::csv_error>([&] { (void)csv(text, options); });
    CHECK(problem.path() == path("list.csv"));
    return problem;
  }
};

}  // namespace

TEST_CASE("a list has the files and labels that it was given", "[blob]") {
  const photos dir;
  const ps::blob_list list{{{"more/b.jpg", -7}, {dir.path("a.jpg"), 1}, {"more/b.jpg", 2}},
                           {.folder = dir.path()}};
  CHECK(list.size() == 3);
  CHECK(test::labels_of(list) == labels{-7, 1, 2});
  CHECK(test::keys_of(list) == names{"more/b.jpg", dir.path("a.jpg"), "more/b.jpg"});
  CHECK(test::content_of(list, 0) == "a dog");
  CHECK(test::content_of(list, 1) == "a cat");
  list.prefetch(0);
  list.prefetch(3);  // nothing
  ps::blob_buffer buffer;
  CHECK(error_of<ps::index_error>([&] { (void)list.bytes(3, buffer); }).size() == 3);
  CHECK_THROWS_AS(list.label(3), ps::index_error);
  CHECK_THROWS_AS(list.key(3), ps::index_error);
}

TEST_CASE("a list starts at the working directory of its construction", "[blob]") {
  const photos dir;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  ps::blob_list list{{{"a.jpg", 1}}};
  std::filesystem::current_path(here);
  CHECK(list.key(0) == "a.jpg");
  ps::blob_list moved{std::move(list)};
  CHECK(test::content_of(moved, 0) == "a cat");
  moved = ps::blob_list{{{"b.jpg", 1}}, {.folder = dir.path("more")}};
  CHECK(test::content_of(moved, 0) == "a dog");
  CHECK_FALSE(std::is_copy_constructible_v<ps::blob_list>);
}

TEST_CASE("a list says what it can't read", "[blob]") {
  const photos dir;
  ps::blob_buffer buffer;
  const ps::blob_list list{{{"missing.jpg", 1}, {"a.jpg", 2}},
                           {.folder = dir.path(), .max_bytes = 4}};
  CHECK(error_of<ps::file_unreadable>([&] { (void)list.bytes(0, buffer); }).path() ==
        dir.path("missing.jpg"));
  CHECK(error_of<ps::file_format_error>([&] { (void)list.bytes(1, buffer); }).path() ==
        dir.path("a.jpg"));
  for (const std::string& bad : {std::string{}, std::string{"a\0b", 3}}) {
    CHECK(error_of<ps::option_error>([&] {
            const ps::blob_list none{{{"a.jpg", 1}, {bad, 2}}};
          }).option() == "entries[1].path");
  }
  CHECK(error_of<ps::folder_unreadable>([&] {
          const ps::blob_list none{std::vector<ps::blob_entry>{}, {.folder = dir.path("none")}};
        }).path() == dir.path("none"));
}

TEST_CASE("a CSV file has paths and labels, by its header", "[blob]") {
  const photos dir;
  const auto list = dir.csv("id,label,path\n1,-3,a.jpg\n2,9,more/b.jpg\n");
  CHECK(test::keys_of(list) == names{"a.jpg", "more/b.jpg"});
  CHECK(test::labels_of(list) == labels{-3, 9});
  CHECK(test::content_of(list, 1) == "a dog");  // from the CSV's folder on
  const auto other = dir.csv(
      "file;kind\nb.jpg;4",
      {.path = "file", .label = 1, .separator = ';', .files = {.folder = dir.path("more")}});
  CHECK(test::content_of(other, 0) == "a dog");
  CHECK(other.label(0) == 4);
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  CHECK(test::content_of(
            ps::blob_list::from_csv(
                "list.csv", {.path = 0, .label = 1, .separator = ';', .files = {.folder = "more"}}),
            0) == "a dog");
  dir.add("short.csv", "path,label\na.jpg,1\n");
  CHECK(test::content_of(ps::blob_list::from_csv("short.csv"), 0) == "a cat");
  std::filesystem::current_path(here);
}

TEST_CASE("a CSV file may have no header", "[blob]") {
  const photos dir;
  const auto list = dir.csv("5,a.jpg\n6,b", {.path = 1, .label = 0, .header = false});
  CHECK(test::keys_of(list) == names{"a.jpg", "b"});
  CHECK(test::labels_of(list) == labels{5, 6});
  CHECK(dir.csv("", {.path = 1, .label = 0, .header = false}).size() == 0);
  CHECK(dir.csv("path,label").size() == 0);
}

TEST_CASE("a CSV file's fields may stand in quotes", "[blob]") {
  const photos dir;
  const auto list =
      dir.csv("\xef\xbb\xbf\"path\",label\r\n\r\n\"a, \"\"b\"\".jpg\",\"7\"\r\n\"c\nd\r\n\",8\n\n");
  CHECK(test::keys_of(list) == names{"a, \"b\".jpg", "c\nd\r\n"});
  CHECK(test::labels_of(list) == labels{7, 8});
}

TEST_CASE("a CSV file's damage is named by line and byte", "[blob]") {
  const photos dir;
  SECTION("a quote that does not end") {
    const auto problem = dir.refused("path,label\na,1\n\"b,2\n");
    CHECK(problem.line() == 3);
    CHECK(problem.offset() == 15);
    CHECK(problem.found() == "the end of the file");
  }
  SECTION("a quote within a field") {
    const auto problem = dir.refused("path,label\na\"b\",1\n");
    CHECK(problem.offset() == 12);
    CHECK(problem.found() == "a quote");
  }
  SECTION("text after a quote") {
    const auto problem = dir.refused("path,label\n\"a\nb\"c,1\n");
    CHECK(problem.offset() == 16);
    CHECK(problem.line() == 3);
    CHECK(problem.found() == "'c'");
  }
  SECTION("a CR alone") {
    const auto problem = dir.refused("path,label\na,1\rb,2\n");
    CHECK(problem.offset() == 14);
    CHECK(problem.found() == "CR without LF");
  }
  SECTION("a row that is too short") {
    const auto problem = dir.refused("path,label\na,1\nb\n");
    CHECK(problem.offset() == 15);
    CHECK(problem.line() == 3);
    CHECK(problem.expected() == "2 fields, as in the first row, in line 3");
    CHECK(problem.found() == "1");
  }
  SECTION("a row that is too long") { CHECK(dir.refused("path,label\na,1,2\n").found() == "3"); }
  SECTION("no label") {
    for (const char* const label : {"", "x", "1x", " 1", "1.5", "9223372036854775808"}) {
      const auto problem = dir.refused(std::string{"path,label\na,"} + label);
      CHECK(problem.line() == 2);
      CHECK(problem.offset() == 13);
      CHECK(problem.expected() == "a whole number of 64 bits in column \"label\" in line 2");
      CHECK(problem.found() == '\'' + std::string{label} + '\'');
    }
    CHECK(dir.csv("path,label\na,9223372036854775807").label(0) ==
          (std::numeric_limits<std::int64_t>::max)());
  }
  SECTION("no path") {
    CHECK(dir.refused("path,label\n,1").found() == "nothing");
    CHECK(dir.refused({"path,label\na\0b,1", 16}).found() == "a NUL");
  }
  SECTION("no such column") {
    const auto problem = dir.refused("name,label\na,1");
    CHECK(problem.expected() == "column \"path\" in line 1");
    CHECK(problem.found() == "2 columns, none of them this");
    CHECK(dir.refused("path,label\na,1", {.label = 2}).expected() == "column 2 in line 1");
    CHECK_THROWS_AS(dir.csv("path,label\na,1", {.label = -1}), ps::csv_error);
  }
  SECTION("a column twice") {
    const auto problem = dir.refused("path,label,path\na,1,b");
    CHECK(problem.offset() == 11);
    CHECK(problem.found() == "a second");
  }
  SECTION("fields without end") {
    const auto problem = dir.refused(std::string(100'000, ','));
    CHECK(problem.expected() == "at most 65536 fields in line 1");
    CHECK(problem.offset() == 65'536);
  }
  SECTION("no row") { CHECK(dir.refused("\n\n").offset() == 2); }
}

TEST_CASE("what a CSV file can't be read with is an option error", "[blob]") {
  const photos dir;
  const auto option = [&](const ps::csv_options& options) {
    return error_of<ps::option_error>([&] { (void)dir.csv("a,1", options); }).option();
  };
  CHECK(option({.header = false}) == "header");
  CHECK(option({.path = 0, .header = false}) == "header");
  CHECK(option({.path = 0, .label = 1, .separator = '"'}) == "separator");
  CHECK(option({.path = 0, .label = 1, .separator = '\n'}) == "separator");
  CHECK(option({.path = 0, .label = 1, .separator = '\r'}) == "separator");
  CHECK_THROWS_AS(ps::blob_list::from_csv(dir.path("missing.csv")), ps::file_unreadable);
}
