// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/indexed/text_lines.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/data/dataset.hpp>
#include <penstock/load/loader.hpp>
#include <penstock/order/sampler.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::has;

namespace {

using lines = std::vector<std::string>;

std::string text_file(const test::temp_dir& folder, const std::string& name,
                      std::string_view text) {
  return folder.write(name, {text.begin(), text.end()});
}

// Splits a text character by character.
lines split(std::string_view text) {
  lines all;
  bool is_open = false;
  for (const char one : text) {
    if (!is_open) all.emplace_back();
    is_open = one != '\n';
    if (is_open) all.back() += one;
  }
  for (std::string& line : all) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
  }
  return all;
}

lines all_of(const ps::text_lines& data) {
  lines all;
  for (std::uint64_t i = 0; i < data.size(); ++i) all.emplace_back(data.line(i));
  return all;
}

// Returns a text with lines of 0 to `longest` bytes. Some lines end in "\r\n", and some texts lack
// the last line ending.
std::string random_text(std::mt19937& bits, std::size_t count, std::size_t longest) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text.append(bits() % (longest + 1), static_cast<char>('a' + i % 26));
    if (bits() % 4 == 0) text += '\r';
    text += '\n';
  }
  if (bits() % 2 == 0 && !text.empty()) text.pop_back();
  return text;
}

lines read_lines(const std::vector<std::string>& paths, std::size_t workers) {
  const ps::text_lines data{paths, {.workers = workers}};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 7, .workers = 2}};
  lines all;
  for (auto& batch : loader.epoch(0)) {
    const auto text = ps::get<"text">(batch);
    for (std::size_t i = 0; i < text.size(); ++i) {
      all.emplace_back(text[i].flat().begin(), text[i].flat().end());
    }
  }
  return all;
}

// Replaces the bytes of a file without changing its modification time.
void replace_bytes(const std::string& path, std::size_t at, std::string_view bytes) {
  const auto time = std::filesystem::last_write_time(path);
  std::string all = test::content_of(path);
  all.replace(at, bytes.size(), bytes);
  std::ofstream{path, std::ios::binary} << all;
  std::filesystem::last_write_time(path, time);
}

}  // namespace

TEST_CASE("lines of any files come in order, without their ends", "[indexed]") {
  const test::temp_dir folder;
  std::mt19937 bits{1};  // NOLINT: a fixed seed
  lines expected;
  std::vector<std::string> paths;
  for (const std::string_view text : {"", "\n", "a", "a\n", "a\r\n", "\r\n\r\n", "\n\n\nb", "\r"}) {
    const lines split_text = split(text);
    expected.insert(expected.end(), split_text.begin(), split_text.end());
    paths.push_back(text_file(folder, "short" + std::to_string(paths.size()), text));
  }
  for (std::size_t i = 0; i < 40; ++i) {
    const std::string text = random_text(bits, bits() % 100, i % 2 == 0 ? 3 : 200);
    const lines split_text = split(text);
    expected.insert(expected.end(), split_text.begin(), split_text.end());
    paths.push_back(text_file(folder, "random" + std::to_string(i), text));
  }
  CHECK(read_lines(paths, 3) == expected);
  CHECK(read_lines(paths, 1) == expected);  // from the kept indexes
  const ps::text_lines data{paths};
  CHECK(all_of(data) == expected);
  CHECK(ps::origin_of(data, 2).part == 3);
  CHECK(ps::origin_of(data, 2).index == 0);
  std::size_t longest = 0;
  for (const std::string& line : expected) longest = (std::max)(longest, line.size());
  CHECK(data.extents().at<0>().longest == longest);
  const std::uint64_t end = data.size();
  CHECK_THROWS_AS(data.line(end), ps::index_error);
}

TEST_CASE("any number of workers and any pieces find the same lines", "[indexed]") {
  const test::temp_dir folder;
  std::mt19937 bits{2};  // NOLINT: a fixed seed
  for (std::size_t round = 0; round < 300; ++round) {
    const std::string text = random_text(bits, bits() % 80, 1 + bits() % 12);
    const ps::mapped_file file{text_file(folder, "text", text)};
    const std::size_t chunk = 1 + bits() % 40;
    const lines all = split(text);
    CAPTURE(round, chunk, text);
    std::uint64_t scanned = 0;
    const auto found = ps::detail::line_format::scan(
        file, 1 + bits() % 4, [&](std::uint64_t done) { scanned = done; }, chunk);
    REQUIRE(found.count == all.size());
    REQUIRE(scanned == text.size());
    std::uint64_t longest = 0;
    for (const std::string& line : all) longest = std::max<std::uint64_t>(longest, line.size());
    REQUIRE(found.longest == longest);
    REQUIRE(found.marks.size() == (all.size() + 15) / 16);
    std::size_t at = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i % 16 == 0) REQUIRE(found.marks[i / 16] == at);
      at = text.find('\n', at) + 1;
    }
  }
}

TEST_CASE("an index is built once, with progress, and takes 8 bytes for 16 lines", "[indexed]") {
  const test::temp_dir folder;
  const std::string path = text_file(folder, "text", std::string(1'000'000, '\n'));
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  const ps::index_options options{.progress = [&](const ps::index_progress& at) {
    CHECK(at.path == path);
    done.push_back(at.done_bytes);
    total = at.total_bytes;
  }};
  CHECK(ps::text_lines{{path}, options}.size() == 1'000'000);
  CHECK(done == std::vector<std::uint64_t>{1'000'000});
  CHECK(total == 1'000'000);
  CHECK(std::filesystem::file_size(path + ".index") == 64 + 1'000'000 / 16 * 8);
  done.clear();
  CHECK(ps::text_lines{{path}, options}.size() == 1'000'000);
  CHECK(done.empty());
  CHECK(test::files_in(folder) == 2);
}

TEST_CASE("a folder for indexes separates files of the same name", "[indexed]") {
  const test::temp_dir folder;
  std::filesystem::create_directory(folder.path("a"));
  std::filesystem::create_directory(folder.path("b"));
  std::filesystem::create_directory(folder.path("indexes"));
  const std::string first = text_file(folder, "a/text", "1\n2\n");
  const std::string second = text_file(folder, "b/text", "3\n");
  const ps::index_options options{.folder = folder.path("indexes")};
  for (int i = 0; i < 2; ++i) {
    CHECK(all_of(ps::text_lines{{first, second}, options}) == lines{"1", "2", "3"});
  }
  CHECK(test::files_in(folder.path("a")) == 1);
  CHECK(test::files_in(folder.path("indexes")) == 2);
}

TEST_CASE("the index of a file that has changed is rebuilt or rejected",
          "[indexed][fault:files-27]") {
  const test::temp_dir folder;
  const std::string path = text_file(folder, "text", "one\ntwo\nthree\n");
  const ps::index_options reject{.on_stale = ps::stale_index::reject};
  CHECK(ps::text_lines{{path}, reject}.size() == 3);
  const auto rejection = [&] {
    return std::string{error_of<ps::file_format_error>([&] {
                         static_cast<void>(ps::text_lines{{path}, reject});
                       }).what()}
        .substr(path.size());
  };

  SECTION("its size differs") {
    text_file(folder, "text", "one\ntwo\nthree\nfour\n");
    CHECK(rejection() ==
          ".index: at byte 24: expected 19 as the size of the data, found 14: remove the index, or "
          "set "
          ".on_stale = rebuild");
  }
  SECTION("its modification time differs") {
    text_file(folder, "text", "one\ntwo\nthre\n\n");
    std::filesystem::last_write_time(
        path, std::filesystem::last_write_time(path + ".index") + std::chrono::seconds{7});
    CHECK(has(rejection(), " as the modification time of the data in nanoseconds, found "));
  }
  SECTION("some of its bytes differ") {
    replace_bytes(path, 8, "\n\n");
    CHECK(has(rejection(), " as the checksum of some bytes of the data, found "));
  }
  CHECK(all_of(ps::text_lines{{path}}) == split(test::content_of(path)));
  CHECK(all_of(ps::text_lines{{path}, reject}) == split(test::content_of(path)));
}

TEST_CASE("any damage of an index is repaired or rejected", "[indexed][fault:files-27]") {
  const test::temp_dir folder;
  const std::string path = text_file(folder, "text", std::string(50, '\n') + "end");
  const lines expected = all_of(ps::text_lines{{path}});
  const std::string whole = test::content_of(path + ".index");
  const auto check = [&](const std::string& damaged) {
    text_file(folder, "text.index", damaged);
    REQUIRE_THROWS_AS((ps::text_lines{{path}, {.on_stale = ps::stale_index::reject}}),
                      ps::file_error);
    REQUIRE(test::content_of(path + ".index") == damaged);
    if (damaged.size() < 8 || damaged.compare(0, 8, whole, 0, 8) != 0) {
      REQUIRE_THROWS_AS(ps::text_lines{{path}}, ps::file_format_error);  // not our file
      REQUIRE(test::content_of(path + ".index") == damaged);
    } else {
      REQUIRE(all_of(ps::text_lines{{path}}) == expected);
      REQUIRE(test::content_of(path + ".index") == whole);
    }
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CAPTURE(at);
    check(damaged);
  }
  for (std::size_t size = 0; size < whole.size(); ++size) check(whole.substr(0, size));
  check(whole + '\0');
}

TEST_CASE("an index whose positions contradict the file is an error", "[indexed][fault:files-27]") {
  const test::temp_dir folder;
  const std::string path = text_file(folder, "text", std::string(40, '\n'));
  (void)ps::text_lines{{path}};
  std::string index = test::content_of(path + ".index");
  index.replace(64 + 8, 8, 8, '\0');  // line 16 has the position of line 0
  const std::uint64_t checksum = ps::detail::checksum_of_index(std::as_bytes(std::span{index}));
  std::memcpy(index.data() + 8, &checksum, sizeof checksum);
  text_file(folder, "text.index", index);
  const ps::text_lines data{{path}, {.on_stale = ps::stale_index::reject}};
  for (const std::uint64_t line : {0U, 3U}) CHECK_THROWS_AS(data.line(line), ps::file_corrupt);
  CHECK(data.line(33).empty());
}

TEST_CASE("a folder that cannot be written is reported before the scan",
          "[indexed][fault:files-27]") {
  const test::temp_dir folder;
  const std::string path = text_file(folder, "text", "line\n");
  bool is_scanned = false;
  const ps::index_options options{.folder = folder.path("no"),
                                  .progress = [&](const auto&) { is_scanned = true; }};
  const auto problem =
      error_of<ps::file_unwritable>([&] { static_cast<void>(ps::text_lines{{path}, options}); });
  CHECK(has(problem.found(), ": set .folder to a folder for index files"));
  CHECK(!is_scanned);
  CHECK(test::files_in(folder) == 1);
  CHECK_THROWS_AS((ps::text_lines{{path}, {.workers = 0}}), ps::option_error);
  CHECK_THROWS_AS(ps::text_lines{std::vector<std::string>{}}, ps::option_error);
  CHECK_THROWS_AS(ps::text_lines{{folder.path("none")}}, ps::file_unreadable);
}

TEST_CASE("a file that changes while its index is built gets no index",
          "[indexed][fault:files-27]") {
  const test::temp_dir folder;
  const std::string path = text_file(folder, "text", "line\n");
  const ps::index_options options{
      .progress = [&](const auto&) { text_file(folder, "text", "line\nline\n"); }};
  CHECK_THROWS_AS((ps::text_lines{{path}, options}), ps::file_changed);
  CHECK(test::files_in(folder) == 1);
}

TEST_CASE("a line that is gone from an open file is an error", "[indexed][fault:files-27]") {
  const test::temp_dir folder;
  const std::string path = text_file(folder, "text", "one\ntwo\nthree\n");
  const ps::text_lines data{{path}};
  CHECK(data.line(2) == "three");
  const int file = ::open(path.c_str(), O_WRONLY);
  REQUIRE(::pwrite(file, "ONE,TWO,THREE,", 14, 0) == 14);
  ::close(file);
  CHECK_THROWS_AS(data.line(2), ps::file_corrupt);
}
