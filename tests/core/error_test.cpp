// SPDX-License-Identifier: BSL-1.0
#include <penstock/core/error.hpp>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("an option error names the option and the problem", "[core]") {
  const ps::option_error problem{"batch_size", "must be 1 or more, but is 0"};
  CHECK(problem.option() == "batch_size");
  CHECK(std::string{problem.what()} == "batch_size: must be 1 or more, but is 0");
}

TEST_CASE("an index error contains the index and the size", "[core]") {
  const ps::index_error problem{"subset", 10, 7};
  CHECK(problem.index() == 10);
  CHECK(problem.size() == 7);
  CHECK(std::string{problem.what()} == "subset: sample index 10 is out of range for size 7");
}

TEST_CASE("every exception of the library is a penstock error", "[core]") {
  CHECK(std::is_base_of_v<ps::error, ps::option_error>);
  CHECK(std::is_base_of_v<ps::error, ps::empty_dataset>);
  CHECK(std::is_base_of_v<ps::error, ps::layout_error>);
  CHECK(std::is_base_of_v<ps::error, ps::index_error>);
  CHECK(std::is_base_of_v<ps::error, ps::leases_exhausted>);
}

TEST_CASE("a failure is formatted as one line", "[core]") {
  ps::failure where{
      .stage = "read", .epoch = 1, .batch = 7, .position = 3, .sample = 4711, .exact = true};
  CHECK(where.str() == "stage read, epoch 1, batch 7, sample 4711 (position 3 of the batch)");
  where.exact = false;
  CHECK(where.str() ==
        "stage read, epoch 1, batch 7, sample 4711 (position 3 of the batch or after it)");
}

TEST_CASE("a message is composed of strings and integers", "[core]") {
  using limits = std::numeric_limits<std::int64_t>;
  const std::string owned = "found ";
  CHECK(ps::detail::str_cat({owned, -1, ", ", (limits::min)(), ", ", (limits::max)(),
                             std::string_view{", "}, std::numeric_limits<std::uint64_t>::max(), "",
                             std::string_view{}, 0U}) ==
        "found -1, -9223372036854775808, 9223372036854775807, 184467440737095516150");
  CHECK(ps::detail::str_cat({}).empty());
}
