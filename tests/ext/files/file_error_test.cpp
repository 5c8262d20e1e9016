// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/file_error.hpp>

#include <string>
#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("a file error names file, offset, what was expected and what was found",
          "[files][promise:honest-6]") {
  const ps::file_truncated problem{"a/b.idx", 16, "784 bytes", "the end"};
  CHECK(problem.path() == "a/b.idx");
  CHECK(problem.offset() == 16);
  CHECK(problem.expected() == "784 bytes");
  CHECK(problem.found() == "the end");
  CHECK(std::string{problem.what()} == "a/b.idx: at byte 16: expected 784 bytes, found the end");
}

TEST_CASE("file errors can be caught by kind and all together", "[files]") {
  CHECK(std::is_base_of_v<ps::error, ps::file_error>);
  CHECK(std::is_base_of_v<ps::file_error, ps::file_unreadable>);
  CHECK(std::is_base_of_v<ps::file_error, ps::file_truncated>);
  CHECK(std::is_base_of_v<ps::file_error, ps::file_corrupt>);
  CHECK(std::is_base_of_v<ps::file_format_error, ps::element_type_mismatch>);
  CHECK(std::is_base_of_v<ps::file_format_error, ps::dimension_mismatch>);
  CHECK(std::is_base_of_v<ps::file_format_error, ps::length_mismatch>);
}
