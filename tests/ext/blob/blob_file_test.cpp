// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/support/blob_file.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "ext/blob/folders.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

constexpr std::uint64_t no_limit = ~std::uint64_t{0};

ps::detail::blob_place place_of(const std::string& path) { return {AT_FDCWD, path.c_str(), {}}; }

std::string read(const std::string& path, std::uint64_t max_bytes = no_limit) {
  ps::blob_buffer buffer;
  return test::text_of(ps::detail::read_blob(place_of(path), max_bytes, buffer));
}

// Returns the exception that is thrown if `change` modifies the file between opening and reading.
template <class Change>
ps::file_changed changed_by(const std::string& path, const Change& change) {
  ps::blob_buffer buffer;
  return error_of<ps::file_changed>(
      [&] { (void)ps::detail::read_blob(place_of(path), no_limit, buffer, change); });
}

}  // namespace

TEST_CASE("a file of any size is read completely", "[blob]") {
  const test::folder dir;
  dir.add("empty", "");
  dir.add("one", "x");
  const std::string large(300'000, 'y');
  dir.add("large", large);
  CHECK(read(dir.path("empty")).empty());
  CHECK(read(dir.path("one")) == "x");
  CHECK(read(dir.path("large")) == large);
  CHECK(read(dir.path("large"), 300'000) == large);
}

TEST_CASE("a file above the limit is rejected before memory is taken", "[blob]") {
  const test::folder dir;
  dir.add("huge", "");
  std::filesystem::resize_file(dir.path("huge"), std::uintmax_t{1} << 40);  // a sparse file
  ps::blob_buffer buffer;
  const auto problem = error_of<ps::file_format_error>(
      [&] { (void)ps::detail::read_blob(place_of(dir.path("huge")), 1000, buffer); });
  CHECK(problem.path() == dir.path("huge"));
  CHECK(problem.offset() == 1000);
  CHECK(problem.expected() == "at most 1000 bytes (max_bytes)");
  CHECK(problem.found() == "1099511627776");
  CHECK(buffer.capacity() == 0);
}

TEST_CASE("a missing or irregular file is named and does not block", "[blob]") {
  const test::folder dir;
  dir.make("folder");
  REQUIRE(::mkfifo(dir.path("pipe").c_str(), 0600) == 0);
  const auto missing = error_of<ps::file_unreadable>([&] { (void)read(dir.path("missing")); });
  CHECK(missing.path() == dir.path("missing"));
  CHECK(missing.found() == "No such file or directory");
  CHECK(error_of<ps::file_unreadable>([&] { (void)read(dir.path("folder")); }).found() ==
        "a folder");
  CHECK(error_of<ps::file_unreadable>([&] { (void)read(dir.path("pipe")); }).found() ==
        "a pipe, socket or device");
}

TEST_CASE("a file that is written to while it is read is rejected", "[blob]") {
  const test::folder dir;
  dir.add("file", "0123456789");
  const std::string path = dir.path("file");
  SECTION("it grows") {
    const auto problem = changed_by(path, [&] { test::folder::write(path, "0123456789abc"); });
    CHECK(problem.path() == path);
    CHECK(problem.offset() == 10);
    CHECK(problem.expected() == "a file of 10 bytes, as when it was opened");
    CHECK_THAT(problem.found(), Catch::Matchers::StartsWith("one of 13, "));
  }
  SECTION("it shrinks") {
    const auto problem = changed_by(path, [&] { std::filesystem::resize_file(path, 4); });
    CHECK(problem.offset() == 4);
    CHECK_THAT(problem.found(), Catch::Matchers::StartsWith("one of 4, "));
  }
  SECTION("it becomes empty") {
    CHECK(changed_by(path, [&] { std::filesystem::resize_file(path, 0); }).offset() == 0);
  }
  SECTION("it was empty") {
    dir.add("file", "");
    CHECK(changed_by(path, [&] { test::folder::write(path, "abc"); }).offset() == 0);
  }
  SECTION("its bytes change") {
    dir.age("file", 1'000'000'000, 0);
    const auto problem = changed_by(path, [&] { test::folder::write(path, "9876543210"); });
    CHECK(problem.expected() == "a file that does not change while it is read");
    dir.age("file", 1'000'000'000, 0);
    CHECK(changed_by(path, [&] { dir.age("file", 1'000'000'000, 1); }).offset() == 0);
    dir.age("file", 1'000'000'000, 0);
    CHECK(changed_by(path, [&] { dir.age("file", 1'000'000'001, 0); }).offset() == 0);
  }
  SECTION("but not if only its name is removed") {
    ps::blob_buffer buffer;
    CHECK(test::text_of(ps::detail::read_blob(place_of(path), no_limit, buffer, [&] {
            std::filesystem::remove(path);
          })) == "0123456789");
  }
}

TEST_CASE("a file shorter than its reported size is rejected", "[blob]") {
  // For this file, the kernel reports a size of 4096 bytes.
  const std::string path = "/sys/devices/system/cpu/online";
  if (!std::filesystem::exists(path)) {
    WARN("no " + path + ": not tried");
    return;
  }
  const auto problem = error_of<ps::file_changed>([&] { (void)read(path); });
  CHECK(problem.offset() < 4096);
  CHECK_THAT(problem.found(),
             Catch::Matchers::StartsWith("one of " + std::to_string(problem.offset()) + ", "));
}

TEST_CASE("a buffer is used again, and a large file makes it grow once", "[blob]") {
  const test::folder dir;
  dir.add("large", std::string(1000, 'x'));
  dir.add("small", "s");
  ps::blob_buffer buffer;
  (void)ps::detail::read_blob(place_of(dir.path("large")), no_limit, buffer);
  const std::size_t capacity = buffer.capacity();
  const auto small_one = ps::detail::read_blob(place_of(dir.path("small")), no_limit, buffer);
  CHECK(test::text_of(small_one) == "s");
  CHECK(buffer.capacity() == capacity);
}

TEST_CASE("a path below a folder is joined by one slash", "[blob]") {
  CHECK(ps::detail::joined_path("a", "b") == "a/b");
  CHECK(ps::detail::joined_path("a/", "b") == "a/b");
  CHECK(ps::detail::joined_path("", "b") == "b");
  CHECK(ps::detail::joined_path("a", "/b") == "/b");
  CHECK(ps::detail::joined_path("a", "") == "a");
  CHECK(ps::detail::joined_path("/", "b") == "/b");
}
