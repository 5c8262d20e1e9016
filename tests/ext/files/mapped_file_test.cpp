// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/mapped_file.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ext/files/npy_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

namespace {

std::string_view text_of(const ps::mapped_file& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

TEST_CASE("a mapped file keeps the bytes of the file after its name is removed", "[files]") {
  const test::temp_dir dir;
  const std::string path = test::write_file(dir.path("a.bin"), "abc");
  ps::mapped_file file{path};
  CHECK(file.path() == path);
  std::filesystem::remove(path);
  CHECK(text_of(file) == "abc");
  const std::byte* const first = file.bytes().data();

  ps::mapped_file moved{std::move(file)};
  CHECK(moved.bytes().data() == first);
  CHECK_FALSE(std::is_copy_constructible_v<ps::mapped_file>);
  ps::mapped_file other{test::write_file(dir.path("b.bin"), "defg")};
  other = std::move(moved);
  CHECK(other.bytes().data() == first);
  CHECK(other.path() == path);
  CHECK(text_of(other) == "abc");
}

TEST_CASE("a file that cannot be mapped is named", "[files][fault:files-1]") {
  const test::temp_dir dir;
  const auto rejected = [](const std::string& path) {
    return test::error_of<ps::file_unreadable>([&] { ps::mapped_file{path}; });
  };
  CHECK(rejected(dir.path("none")).path() == dir.path("none"));
  CHECK(rejected(dir.path("")).found() == "a file that is not a regular file");
  CHECK(ps::mapped_file{test::write_file(dir.path("empty"), "")}.bytes().empty());
}
