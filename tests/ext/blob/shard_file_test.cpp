// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/support/blob_file.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "ext/blob/folders.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;
using test::error_of;

namespace {

std::string four_at(const ps::detail::shard_file& file, std::uint64_t offset) {
  std::array<std::byte, 4> bytes{};
  file.read_unchanged(offset, bytes);
  return test::text_of(bytes);
}

}  // namespace

TEST_CASE("a shard's file is read by its place, closed or not", "[blob]") {
  const test::folder dir;
  dir.add("a", "0123456789");
  ps::detail::shard_file file{dir.path("a")};
  CHECK(file.size() == 10);
  CHECK(four_at(file, 3) == "3456");
  std::array<std::byte, 4> bytes{};
  CHECK(file.read_at(8, bytes) == 2);
  file.close();
  CHECK(four_at(file, 6) == "6789");
}

TEST_CASE("a shard's file that is a different header by now is rejected with the place", "[blob]") {
  const test::folder dir;
  dir.add("a", "0123456789");
  dir.age();
  const ps::detail::shard_file file{dir.path("a")};
  std::filesystem::resize_file(dir.path("a"), 5);
  CHECK(error_of<ps::file_changed>([&] { four_at(file, 3); }).path() == dir.path("a"));
  CHECK(error_of<ps::file_unreadable>([&] { ps::detail::shard_file{dir.path("none")}; }).path() ==
        dir.path("none"));
  CHECK(error_of<ps::file_unreadable>([&] { ps::detail::shard_file{dir.path()}; }).found() ==
        "a folder");
}
