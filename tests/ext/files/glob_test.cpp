// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/glob.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "ext/files/npy_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;

TEST_CASE("glob returns the paths that match, sorted by their bytes", "[files]") {
  const test::temp_dir dir;
  for (const char* name : {"b_10.bin", "b_9.bin", "B_1.bin", "a.bin", "a.txt", ".b.bin"}) {
    test::write_file(dir.path(name), "");
  }
  CHECK(ps::glob(dir.path("*.bin")) ==
        std::vector<std::string>{dir.path("B_1.bin"), dir.path("a.bin"), dir.path("b_10.bin"),
                                 dir.path("b_9.bin")});
  CHECK(ps::glob(dir.path("?.[tu]xt")) == std::vector{dir.path("a.txt")});
  CHECK(ps::glob(dir.path("a.bin")) == std::vector{dir.path("a.bin")});
}

TEST_CASE("a pattern that matches nothing is an error that names it", "[files][fault:files-1]") {
  const test::temp_dir dir;
  const std::string pattern = dir.path("*.bin");
  const auto none = test::error_of<ps::file_unreadable>([&] { (void)ps::glob(pattern); });
  CHECK(none.path() == pattern);
  CHECK(none.found() == "none");
}
