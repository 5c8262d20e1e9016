// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/image_folder.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
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

struct cats_and_dogs : test::folder {
  cats_and_dogs() {
    add("dog/1.jpg", "a dog");
    add("cat/2.png", "two cats");
    add("cat/1.jpg", "a cat");
  }
};

// Drops root privileges within a scope, because root may read every file.
struct no_root {
  no_root() {
    if (user == 0) REQUIRE(::seteuid(65'534) == 0);
  }
  ~no_root() { static_cast<void>(::seteuid(user)); }
  ::uid_t user = ::geteuid();
};

}  // namespace

TEST_CASE("the classes of a folder are its sub-directories", "[blob]") {
  const cats_and_dogs dir;
  dir.add("readme.jpg");  // a file outside any class folder
  const ps::image_folder photos{dir.path()};
  CHECK(photos.size() == 3);
  CHECK(photos.classes() == names{"cat", "dog"});
  CHECK(test::keys_of(photos) == names{"cat/1.jpg", "cat/2.png", "dog/1.jpg"});
  CHECK(test::labels_of(photos) == labels{0, 0, 1});
  CHECK(test::content_of(photos, 1) == "two cats");
  CHECK(test::content_of(photos, 2) == "a dog");
  photos.prefetch(0);
  photos.prefetch(3);  // out of range, so nothing happens
}

TEST_CASE("the order matches torchvision's ImageFolder", "[blob]") {
  const test::folder dir;
  // Folders are sorted by their full paths: '-' and '.' sort before '/', and '0' after it.
  for (const char* const name : {"b/z.jpg", "b/a/2.jpg", "b/a/1.jpg", "b/a-x/1.jpg", "b/a/c/1.jpg",
                                 "b/a0/1.jpg", "b/a.b/1.jpg", "B/1.jpg", "a/10.jpg", "a/9.jpg",
                                 "a/\xc3\xa9.jpg", "a/Z.jpg", "\xc3\xa4/1.jpg"}) {
    dir.add(name);
  }
  const ps::image_folder photos{dir.path()};
  CHECK(photos.classes() == names{"B", "a", "b", "\xc3\xa4"});
  CHECK(test::keys_of(photos) == names{"B/1.jpg", "a/10.jpg", "a/9.jpg", "a/Z.jpg",
                                       "a/\xc3\xa9.jpg", "b/z.jpg", "b/a/1.jpg", "b/a/2.jpg",
                                       "b/a-x/1.jpg", "b/a.b/1.jpg", "b/a/c/1.jpg", "b/a0/1.jpg",
                                       "\xc3\xa4/1.jpg"});
}

TEST_CASE("files are listed by the end of their names, in letters of any case", "[blob]") {
  const test::folder dir;
  for (const char* const name :
       {"a/1.JPG", "a/2.Jpeg", "a/3.png", "a/4.ppm", "a/5.bmp", "a/6.pgm", "a/7.tif", "a/8.TIFF",
        "a/9.webp", "a/jpg", "a/x.jpg.txt", "a/y.gif", "a/.jpg"}) {
    dir.add(name);
  }
  CHECK(ps::image_folder{dir.path()}.size() == 9);
  CHECK(test::keys_of(ps::image_folder{dir.path(), {.extensions = {".TXT", "gif"}}}) ==
        names{"a/x.jpg.txt", "a/y.gif"});
  CHECK(ps::image_folder{dir.path(), {.extensions = {""}}}.size() == 12);
  CHECK(error_of<ps::option_error>([&] {
          const ps::image_folder none{dir.path(), {.extensions = {}}};
        }).option() == "extensions");
  CHECK_THROWS_AS((ps::image_folder{dir.path(), {.extensions = {"a/b"}}}), ps::option_error);
  CHECK_THROWS_AS((ps::image_folder{dir.path(), {.extensions = {std::string(1, '\0')}}}),
                  ps::option_error);
}

TEST_CASE("a class without files is an error that names it, or allowed", "[blob]") {
  const cats_and_dogs dir;
  dir.make("cow");
  dir.add("cow/notes.txt");
  const auto problem = error_of<ps::empty_folder>([&] { const ps::image_folder f{dir.path()}; });
  CHECK(problem.path() == dir.path("cow"));
  CHECK(problem.found() == "1 other file");
  dir.add("cow/more.txt");
  CHECK(error_of<ps::empty_folder>([&] { const ps::image_folder f{dir.path()}; }).found() ==
        "2 other files");
  CHECK_THAT(problem.expected(), Catch::Matchers::StartsWith("a file that ends in one of .jpg, "));
  const ps::image_folder photos{dir.path(), {.allow_empty = true}};
  CHECK(photos.classes() == names{"cat", "cow", "dog"});
  CHECK(test::labels_of(photos) == labels{0, 0, 2});
}

TEST_CASE("hidden files and folders are skipped and counted", "[blob][fault:files-25]") {
  const cats_and_dogs dir;
  CHECK(ps::image_folder{dir.path()}.warnings().empty());
  for (const char* const name : {".ipynb_checkpoints/1.jpg", "__MACOSX/cat/._1.jpg", "cat/._1.jpg",
                                 "cat/.cache/1.jpg", "dog/thumbs.db", "dog/Desktop.ini"}) {
    dir.add(name);
  }
  const ps::image_folder photos{dir.path(), {.extensions = {""}}};
  CHECK(photos.classes() == names{"cat", "dog"});
  CHECK(test::keys_of(photos) == names{"cat/1.jpg", "cat/2.png", "dog/1.jpg"});
  CHECK(test::labels_of(photos) == labels{0, 0, 1});
  CHECK(photos.hidden() == 6);
  REQUIRE(photos.warnings().size() == 1);
  CHECK_THAT(
      photos.warnings()[0],
      Catch::Matchers::StartsWith(dir.path() + ": left out 6 hidden files and folders, such as "));
  const test::folder only;
  only.add(".cat/1.jpg");
  CHECK(error_of<ps::empty_folder>([&] { const ps::image_folder f{only.path()}; }).found() ==
        "only hidden entries, such as .cat");
}

TEST_CASE("a folder without classes is an error", "[blob]") {
  const test::folder dir;
  dir.add("1.jpg");
  CHECK(error_of<ps::empty_folder>([&] {
          const ps::image_folder f{dir.path(), {.allow_empty = true}};
        }).path() == dir.path());
  const auto missing =
      error_of<ps::folder_unreadable>([&] { const ps::image_folder f{dir.path("missing")}; });
  CHECK(missing.path() == dir.path("missing"));
  CHECK(missing.found() == "No such file or directory");
  CHECK(error_of<ps::folder_unreadable>([&] {
          const ps::image_folder f{dir.path("1.jpg")};
        }).found() == "Not a directory");
}

TEST_CASE("a folder that can't be read is named", "[blob]") {
  const cats_and_dogs dir;
  dir.make("cat/inner");
  std::filesystem::permissions(dir.path("cat/inner"), std::filesystem::perms::none);
  std::filesystem::permissions(dir.beside(""), std::filesystem::perms{0755});
  {
    const no_root somebody;
    const auto problem =
        error_of<ps::folder_unreadable>([&] { const ps::image_folder f{dir.path()}; });
    CHECK(problem.path() == dir.path("cat/inner"));
    CHECK(problem.found() == "Permission denied");
  }
  std::filesystem::permissions(dir.path("cat/inner"), std::filesystem::perms::owner_all);
}

TEST_CASE("a path that is too long for the system is named", "[blob]") {
  const cats_and_dogs dir;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(dir.path("dog"));
  const auto descend = [](std::size_t length) {
    const std::string part(length, 'x');
    std::filesystem::create_directory(part);
    std::filesystem::current_path(part);
  };
  for (int depth = 0; depth < 16; ++depth) descend(250);
  descend(69);  // the path has 4089 bytes; the limit is 4095
  test::folder::write("a.jpg", "near");
  test::folder::write("1234.jpg", "far");
  const ps::image_folder photos{dir.path()};
  descend(10);
  std::filesystem::current_path(here);
  REQUIRE(photos.size() == 5);
  ps::blob_buffer buffer;
  const auto far = error_of<ps::file_unreadable>([&] { (void)photos.bytes(3, buffer); });
  CHECK(far.found() == "File name too long");
  CHECK(far.path() == dir.path(photos.key(3)));
  photos.prefetch(3);  // out of range, so nothing happens
  CHECK(test::content_of(photos, 4) == "near");
  const auto problem =
      error_of<ps::folder_unreadable>([&] { const ps::image_folder f{dir.path()}; });
  CHECK(problem.found() == "File name too long");
}

TEST_CASE("links are followed, and a cycle of links is reported", "[blob]") {
  const cats_and_dogs dir;
  test::folder::write(dir.beside("far.txt"), "far away");
  dir.add("../elsewhere/deep/3.jpg", "elsewhere");
  dir.link("../cat/1.jpg", "dog/0.jpg");
  dir.link("../../far.txt", "dog/2.jpg");
  dir.link("../elsewhere", "bird");
  dir.link("../../elsewhere", "dog/more");  // a folder may be listed more than once
  const ps::image_folder photos{dir.path()};
  CHECK(photos.classes() == names{"bird", "cat", "dog"});
  CHECK(test::keys_of(photos) == names{"bird/deep/3.jpg", "cat/1.jpg", "cat/2.png", "dog/0.jpg",
                                       "dog/1.jpg", "dog/2.jpg", "dog/more/deep/3.jpg"});
  CHECK(test::content_of(photos, 3) == "a cat");
  CHECK(test::content_of(photos, 5) == "far away");
  CHECK(test::content_of(photos, 6) == "elsewhere");

  SECTION("with a link to its own class folder") { dir.link("../cat", "cat/again"); }
  SECTION("with a link to the root folder") { dir.link("..", "cat/again"); }
  SECTION("with a cycle outside of the root folder") {
    dir.make("../elsewhere/deep/er");
    dir.link("../../../elsewhere", "../elsewhere/deep/er/again");
  }
  const auto problem = error_of<ps::folder_cycle>([&] { const ps::image_folder f{dir.path()}; });
  CHECK_THAT(problem.path(), Catch::Matchers::EndsWith("/again"));
}

TEST_CASE("a file that can't be read is listed, and named when it is read", "[blob]") {
  const cats_and_dogs dir;
  dir.link("nowhere", "cat/0.jpg");
  const ps::image_folder photos{dir.path()};
  REQUIRE(photos.size() == 4);
  ps::blob_buffer buffer;
  const auto problem = error_of<ps::file_unreadable>([&] { (void)photos.bytes(0, buffer); });
  CHECK(problem.path() == dir.path("cat/0.jpg"));
  CHECK(problem.found() == "No such file or directory");
  photos.prefetch(0);  // ignores the error
  std::filesystem::remove(dir.path("dog/1.jpg"));
  CHECK(error_of<ps::file_unreadable>([&] { (void)photos.bytes(3, buffer); }).path() ==
        dir.path("dog/1.jpg"));
  CHECK(test::text_of(photos.bytes(1, buffer)) == "a cat");
}

TEST_CASE("a larger file than max_bytes is rejected", "[blob]") {
  const cats_and_dogs dir;
  const ps::image_folder photos{dir.path(), {.max_bytes = 5}};
  ps::blob_buffer buffer;
  CHECK(test::text_of(photos.bytes(0, buffer)) == "a cat");
  CHECK(error_of<ps::file_format_error>([&] { (void)photos.bytes(1, buffer); }).path() ==
        dir.path("cat/2.png"));
}

TEST_CASE("an index out of range is an index error", "[blob]") {
  const cats_and_dogs dir;
  const ps::image_folder photos{dir.path()};
  ps::blob_buffer buffer;
  CHECK(error_of<ps::index_error>([&] { (void)photos.bytes(3, buffer); }).size() == 3);
  CHECK_THROWS_AS(photos.label(3), ps::index_error);
  CHECK_THROWS_AS(photos.key(3), ps::index_error);
}

TEST_CASE("a folder that was moved in memory still reads after the process changes directory",
          "[blob]") {
  const cats_and_dogs dir;
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(dir.beside(""));
  ps::image_folder photos{"photos"};
  std::filesystem::current_path(here);
  ps::image_folder moved{std::move(photos)};
  CHECK(test::content_of(moved, 0) == "a cat");
  CHECK_FALSE(std::is_copy_constructible_v<ps::image_folder>);
  ps::image_folder other{dir.path(), {.extensions = {".png"}, .allow_empty = true}};
  other = std::move(moved);
  CHECK(test::content_of(other, 2) == "a dog");
}
