// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/bulk/bulk_file.hpp>

#include <sys/stat.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "ext/bulk/bulk_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/in_child.hpp"
#include "support/limits.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::content_of;
using test::device;
using test::error_of;
using test::files_in;
using test::load;
using test::page;
using test::put;

namespace {

std::string text_of(std::size_t count) {
  std::string text(count, '\0');
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}
std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span{text});
}
const ps::bulk_options small{.workers = 3, .piece_bytes = page};

void save(ps::bulk_file_sink sink, const std::string& text) {
  ps::download(device, device.inline_stream(), std::move(sink), bytes_of(text), small).wait();
}

}  // namespace

TEST_CASE("a download writes a complete file with its checksum, and an upload reads it",
          "[files][bulk][promise:honest-21]") {
  const auto size = GENERATE(std::size_t{0}, std::size_t{1}, 9 * page + 77);
  const test::temp_dir dir;
  const std::string path = dir.path("weights");
  const std::string text = text_of(size);
  std::optional<std::uint64_t> sum;
  save(ps::bulk_file_sink{path, [&](std::uint64_t found) { sum = found; }}, text);
  CHECK(content_of(path) == text);
  CHECK(files_in(dir) == 1);
  REQUIRE(sum);
  CHECK(load(ps::bulk_file_source{path, {.checksum = sum}}) == text);
  if (size > 100) {
    CHECK(load(ps::bulk_file_source{path, {.offset = 50, .size = 2 * page}}) ==
          text.substr(50, 2 * page));
    CHECK(load(ps::bulk_file_source{path, {.offset = size}}).empty());
  }
}

TEST_CASE("the checksum of pieces in any order equals the checksum of the whole data",
          "[files][bulk]") {
  const std::string text = "123456789";
  const auto part = [&](ps::detail::pieces_checksum& to, std::size_t at, std::size_t count) {
    to.add(at, bytes_of(text).subspan(at, count));
  };
  ps::detail::pieces_checksum sum;
  part(sum, 4, 4);
  part(sum, 8, 1);
  part(sum, 0, 4);
  CHECK(sum.value() == 0xae8b14860a799888U);  // check value of CRC-64/NVME
  CHECK(ps::detail::pieces_checksum{}.value() == 0);
}

TEST_CASE("a file is written completely or not at all",
          "[files][bulk][fault:files-18][fault:memory-7]") {
  const test::temp_dir dir;
  const std::string path = dir.path("weights");
  put(path, "what was there");
  ::chmod(path.c_str(), 0640);
  SECTION("a full disk") {
    const test::file_limit limit{3 * page};
    const auto problem =
        error_of<ps::file_unwritable>([&] { save(ps::bulk_file_sink{path}, text_of(9 * page)); });
    CHECK(problem.path() == path);
    CHECK(problem.offset() >= 3 * page);
    CHECK(test::has(problem.expected(), "room for 4096 bytes"));
    CHECK(test::has(problem.found(), "File too large"));
  }
  SECTION("a cancelled download") {
    const std::string text = text_of(9 * page);
    auto saving = ps::download(device, device.inline_stream(), ps::bulk_file_sink{path},
                               bytes_of(text), {.stop = [] {
                                 std::stop_source stop;
                                 stop.request_stop();
                                 return stop.get_token();
                               }()});
    CHECK_THROWS_AS(saving.wait(), ps::cancelled);
  }
  SECTION("an unused sink") { const ps::bulk_file_sink unused{path}; }
  SECTION("a forked child that destroys the sink of its parent") {
    auto sink = std::make_optional<ps::bulk_file_sink>(path);
    CHECK(test::in_child([&] {
            sink.reset();
            return files_in(dir) == 2 ? 0 : 1;
          }) == 0);
  }
  CHECK(content_of(path) == "what was there");
  CHECK(files_in(dir) == 1);
  save(ps::bulk_file_sink{path}, "new");
  CHECK(content_of(path) == "new");
  struct ::stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U) == 0640U);
}

TEST_CASE("a sink removes the partial file of a killed process", "[files][bulk][fault:files-18]") {
  const test::temp_dir dir;
  const std::string path = dir.path("weights");
  const ps::bulk_file_sink other{dir.path("other")};
  CHECK(test::in_child([&] {
          const ps::bulk_file_sink sink{path};
          std::raise(SIGKILL);
          return 0;
        }) != 0);
  CHECK(files_in(dir) == 2);
  const ps::bulk_file_sink sink{path};
  CHECK(files_in(dir) == 2);
  const ps::bulk_file_sink second{path};  // The file of the first sink is locked.
  CHECK(files_in(dir) == 3);
}

TEST_CASE("a file is never readable by more users while it is written", "[files][bulk]") {
  const test::temp_dir dir;
  const std::string path = dir.path("weights");
  put(path, "secret");
  const ::mode_t mode = GENERATE(0600U, 0400U);
  ::chmod(path.c_str(), mode);
  const ps::bulk_file_sink sink{path};
  struct ::stat status {};
  for (const auto& one : std::filesystem::directory_iterator{dir.path("")}) {
    REQUIRE(::stat(one.path().c_str(), &status) == 0);
    CHECK((status.st_mode & 0177U) == 0);
  }
}

TEST_CASE("a relative path refers to the folder in which the sink was created", "[files][bulk]") {
  const test::temp_dir dir;
  const test::temp_dir other;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path(""));
  ps::bulk_file_sink sink{"weights"};
  std::filesystem::current_path(other.path(""));
  CHECK_NOTHROW(save(std::move(sink), "new"));
  std::filesystem::current_path(before);
  CHECK(content_of(dir.path("weights")) == "new");
  CHECK((files_in(dir) == 1 && files_in(other) == 0));
}

TEST_CASE("a link is followed, and a path to anything but a regular file is rejected",
          "[files][bulk][fault:files-18]") {
  const test::temp_dir dir;
  put(dir.path("real"), "old");
  std::filesystem::create_symlink("real", dir.path("link"));
  save(ps::bulk_file_sink{dir.path("link")}, "new");
  CHECK(content_of(dir.path("real")) == "new");
  CHECK(std::filesystem::is_symlink(dir.path("link")));
  CHECK_THROWS_AS(ps::bulk_file_sink{"/dev/null"}, ps::file_unwritable);
  const auto problem =
      error_of<ps::file_unwritable>([&] { ps::bulk_file_sink{dir.path("none/weights")}; });
  CHECK(test::has(problem.found(), "No such file"));
}

TEST_CASE("an upload of an invalid file throws an error with the cause",
          "[files][bulk][fault:files-18]") {
  const test::temp_dir dir;
  const std::string path = dir.path("weights");
  put(path, text_of(6 * page));
  CHECK_THROWS_AS(ps::bulk_file_source{dir.path("none")}, ps::file_unreadable);
  CHECK_THROWS_AS(ps::bulk_file_source{dir.path("")}, ps::file_unreadable);
  const auto cut = error_of<ps::file_truncated>(
      [&] { ps::bulk_file_source{path, {.offset = page, .size = 6 * page}}; });
  CHECK(cut.offset() == 6 * page);
  CHECK_THROWS_AS((ps::bulk_file_source{path, {.offset = 6 * page + 1}}), ps::file_truncated);

  const auto damaged = error_of<ps::file_corrupt>(
      [&] { load(ps::bulk_file_source{path, {.checksum = std::uint64_t{17}}}); });
  CHECK(test::has(damaged.expected(), "0000000000000011"));

  ps::bulk_file_source shortened{path};
  std::filesystem::resize_file(path, 2 * page + 5);
  const auto gone = error_of<ps::file_truncated>([&] { load(std::move(shortened)); });
  CHECK((gone.path() == path && gone.offset() >= 2 * page + 5));

  ps::bulk_file_source changed{path};
  put(path, text_of(2 * page + 5) + "more");
  CHECK_THROWS_AS(load(std::move(changed)), ps::file_changed);
}
