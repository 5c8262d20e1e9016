// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/blob_list.hpp>

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

struct photos : test::folder {
  photos() {
    add("a.jpg", "a cat");
    add("more/b.jpg", "a dog");
  }
};

}  // namespace

TEST_CASE("a list has the files and labels of its constructor", "[blob]") {
  const photos dir;
  const ps::blob_list list{{{"more/b.jpg", -7}, {dir.path("a.jpg"), 1}, {"more/b.jpg", 2}},
                           {.folder = dir.path()}};
  CHECK(list.size() == 3);
  CHECK(test::labels_of(list) == labels{-7, 1, 2});
  CHECK(test::keys_of(list) == names{"more/b.jpg", dir.path("a.jpg"), "more/b.jpg"});
  CHECK(test::content_of(list, 0) == "a dog");
  CHECK(test::content_of(list, 1) == "a cat");
  list.prefetch(0);
  list.prefetch(3);  // out of range, so nothing happens
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

TEST_CASE("a blob list names a file that it cannot read", "[blob]") {
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
