// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/detail/root_folder.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "ext/store/files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

std::string content_by(const ps::detail::root_folder& root, const std::string& name) {
  const ps::detail::descriptor file = root.open(name);
  std::string text(100, '\0');
  const auto count = ::read(file.get(), text.data(), text.size());
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return text;
}

}  // namespace

TEST_CASE("no object's name leads to a file outside of the folder", "[store][fault:stores-1]") {
  const test::stored_files files;
  files.add("a/b.txt", "inside");
  files.link("../secret", "up");
  files.link(files.beside("secret"), "far");
  files.link("..", "a/parent");
  files.link(files.beside(""), "a/other");
  files.link("/proc/self/root", "magic");
  for (const bool has_openat2 : {true, false}) {
    CAPTURE(has_openat2);
    const ps::detail::root_folder root{files.path(), has_openat2};
    CHECK(content_by(root, "a/b.txt") == "inside");
    CHECK(content_by(root, "a//b.txt") == "inside");
    CHECK(content_by(root, "./a/./b.txt") == "inside");
    for (const std::string name :
         {"", "..", "../secret", "a/../../secret", "a/..", "/etc/passwd", "a/../a/b.txt"}) {
      CAPTURE(name);
      const auto problem = error_of<ps::object_name_error>([&] { (void)root.open(name); });
      CHECK(problem.path() == name);
      CHECK(problem.expected() == "a relative path without '..'");
    }
    CHECK_THROWS_AS((void)root.open(std::string("a\0b", 3)), ps::object_name_error);
    for (const char* const name :
         {"up", "far", "a/parent/../secret", "a/parent/up", "a/other/secret", "magic/etc/passwd"}) {
      CAPTURE(name);
      CHECK_THROWS_AS((void)root.open(name), ps::object_name_error);
    }
    // Only ".." itself is rejected. A name may begin or end with two dots.
    files.add("..a/b..", "dots");
    CHECK(content_by(root, "..a/b..") == "dots");
  }
}

TEST_CASE("links that stay inside are followed if the system can check them",
          "[store][fault:stores-1]") {
  const test::stored_files files;
  files.add("a/b.txt", "inside");
  files.link("a", "alias");
  files.link("a/b.txt", "file");
  const ps::detail::root_folder root{files.path()};
  try {
    CHECK(content_by(root, "file") == "inside");
    CHECK(content_by(root, "alias/b.txt") == "inside");
  } catch (const ps::object_name_error& problem) {
    WARN("no openat2 here: " << problem.what());
  }
  const ps::detail::root_folder old{files.path(), false};
  const auto problem = error_of<ps::object_name_error>([&] { (void)old.open("file"); });
  CHECK(test::has(problem.what(), "no openat2"));
  CHECK_THROWS_AS((void)old.open("alias/b.txt"), ps::object_name_error);
}

TEST_CASE("a folder that is a link itself, and one that is missing", "[store]") {
  const test::stored_files files;
  files.add("x", "content");
  std::filesystem::create_symlink(files.path(), files.beside("alias"));
  CHECK(content_by(ps::detail::root_folder{files.beside("alias")}, "x") == "content");
  const auto missing = error_of<ps::file_unreadable>(
      [&] { const ps::detail::root_folder none{files.beside("none")}; });
  CHECK(missing.path() == files.beside("none"));
  CHECK(missing.found() == "No such file or directory");
  CHECK_THROWS_AS(ps::detail::root_folder{files.path("x")}, ps::file_unreadable);
}

TEST_CASE("a path that is not a regular file is rejected without blocking",
          "[store][fault:stores-1]") {
  const test::stored_files files;
  files.add("folder/x", "");
  REQUIRE(::mkfifo(files.path("pipe").c_str(), 0600) == 0);
  for (const bool has_openat2 : {true, false}) {
    const ps::detail::root_folder root{files.path(), has_openat2};
    CHECK(error_of<ps::file_unreadable>([&] { (void)root.open("folder"); }).found() == "a folder");
    CHECK(error_of<ps::file_unreadable>([&] { (void)root.open("pipe"); }).found() ==
          "a pipe, socket or device");
    const auto missing = error_of<ps::file_unreadable>([&] { (void)root.open("folder/y"); });
    CHECK(missing.path() == files.path("folder/y"));
    CHECK(missing.found() == "No such file or directory");
    CHECK_THROWS_AS((void)root.open("folder/x/y"), ps::file_unreadable);
    // With O_NONBLOCK, io_uring would return EAGAIN for data that is not in memory.
    CHECK((::fcntl(root.open("folder/x").get(), F_GETFL) & O_NONBLOCK) == 0);
  }
}
