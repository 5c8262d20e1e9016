// SPDX-License-Identifier: BSL-1.0
#include <penstock/memory/support/sample_lists.hpp>

#include <array>
#include <cstdint>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::sample_lists;

namespace {

using some = std::vector<std::uint64_t>;
some all_of_list(std::span<const std::uint64_t> list) { return {list.begin(), list.end()}; }

}  // namespace

TEST_CASE("lists contain the samples of each slot's batch", "[memory]") {
  sample_lists lists{2, 4};
  REQUIRE(lists.is_on());
  lists.begin_batch(1);
  lists.record(1, 2, std::array<std::uint64_t, 2>{30, 40});
  lists.record(1, 0, std::array<std::uint64_t, 2>{10, 20});
  lists.record(0, 0, std::array<std::uint64_t, 1>{99});
  lists.record_replacement(1, 3, 41);
  lists.record_replacement(1, 0, 11);
  lists.end_batch(1);
  sample_lists elsewhere;
  elsewhere.take(0, lists.indices(1, 4), lists.replaced(1));
  CHECK(all_of_list(lists.indices(1, 4)) == some{11, 20, 30, 41});
  CHECK(all_of_list(lists.replaced(1)) == some{0, 3});
  CHECK(all_of_list(lists.indices(0, 1)) == some{99});
  CHECK(elsewhere.indices(0, 4).empty());

  sample_lists other{3, 4};
  other.take(2, lists.indices(1, 4), lists.replaced(1));
  lists.begin_batch(1);
  CHECK(lists.replaced(1).empty());
  CHECK(all_of_list(other.indices(2, 4)) == some{11, 20, 30, 41});
  CHECK(all_of_list(other.replaced(2)) == some{0, 3});
}

TEST_CASE("a batch's lists move to a slot of another ring, and are copied if slots differ",
          "[memory]") {
  sample_lists from{2, 4};
  from.record(1, 0, std::array<std::uint64_t, 3>{10, 20, 30});
  from.record_replacement(1, 2, 31);
  const auto* const memory = from.indices(1, 3).data();

  sample_lists to{2, 4};
  to.record_replacement(0, 3, 99);
  const auto* const spare = to.indices(0, 3).data();
  to.take(0, from, 1, 3);
  CHECK(all_of_list(to.indices(0, 3)) == some{10, 20, 31});
  CHECK(all_of_list(to.replaced(0)) == some{2});
  CHECK(to.indices(0, 3).data() == memory);
  CHECK(from.indices(1, 3).data() == spare);
  CHECK(from.replaced(1).empty());

  sample_lists larger{1, 5};
  larger.take(0, to, 0, 3);
  CHECK(all_of_list(larger.indices(0, 3)) == some{10, 20, 31});
  CHECK(all_of_list(larger.replaced(0)) == some{2});
  CHECK(to.indices(0, 3).data() == memory);

  sample_lists off;
  off.take(0, to, 0, 3);
  CHECK(off.indices(0, 3).empty());
}

TEST_CASE("skipped samples are removed from a list, and later samples move up", "[memory]") {
  sample_lists lists{1, 5};
  lists.record(0, 0, std::array<std::uint64_t, 5>{1, 2, 3, 4, 5});
  lists.close_gaps(0, std::array<std::uint8_t, 5>{1, 0, 0, 1, 0});
  CHECK(all_of_list(lists.indices(0, 3)) == some{2, 3, 5});
}

TEST_CASE("disabled lists accept all calls and stay empty", "[memory]") {
  sample_lists lists;
  CHECK_FALSE(lists.is_on());
  lists.begin_batch(7);
  lists.record(7, 3, std::array<std::uint64_t, 1>{1});
  lists.record_replacement(7, 3, 1);
  lists.end_batch(7);
  lists.close_gaps(7, std::array<std::uint8_t, 1>{1});
  CHECK(lists.indices(7, 1).empty());
  CHECK(lists.replaced(7).empty());
}
