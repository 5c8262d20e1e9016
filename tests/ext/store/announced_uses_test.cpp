// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/store/cache/detail/planned_uses.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "support/catch.hpp"

using penstock::detail::announced_uses;
using penstock::detail::never;

namespace {

using blocks_in_order = std::vector<std::uint64_t>;

const int reader = 0;
const int other_reader = 0;

// Uses the block and returns the blocks that were dropped as a result.
blocks_in_order used(announced_uses& uses, std::uint64_t block) {
  blocks_in_order gone;
  uses.use(block, [&](std::uint64_t one) { gone.push_back(one); });
  return gone;
}

}  // namespace

TEST_CASE("the next use of a block is its first announced use that has not happened",
          "[store][promise:bounded-11]") {
  announced_uses uses;
  CHECK(uses.of(7) == never);
  uses.append(&reader, blocks_in_order{7, 8, 7});
  uses.append(&other_reader, blocks_in_order{9, 8});
  CHECK(uses.of(7) < uses.of(8));
  CHECK(uses.of(8) < uses.of(9));
  CHECK(used(uses, 7).empty());
  CHECK(uses.of(8) < uses.of(7));
  CHECK(uses.of(7) < uses.of(9));
  CHECK(used(uses, 7).empty());
  CHECK(uses.of(7) == never);
  CHECK(used(uses, 7).empty());
  CHECK(uses.size() == 3);
}

TEST_CASE("the use after the next use is also known", "[store]") {
  announced_uses uses;
  const blocks_in_order order{7, 8, 7, 9, 7};
  uses.append(&reader, order);
  CHECK(uses.after(6) == never);
  CHECK(uses.after(8) == never);
  for (int uses_left = 3; uses_left > 0; --uses_left) {
    const std::uint64_t after = uses.after(7);
    CHECK((after == never) == (uses_left == 1));
    CHECK(used(uses, 7).empty());
    CHECK(uses.of(7) == after);
  }
}

TEST_CASE("a withdrawal by one reader keeps the announcements of others in order",
          "[store][promise:bounded-11]") {
  announced_uses uses;
  uses.append(&reader, blocks_in_order{1, 2, 3});
  uses.append(&other_reader, blocks_in_order{3, 1});
  uses.append(&reader, blocks_in_order{1});
  CHECK(used(uses, 1).empty());
  uses.retract(&reader);
  CHECK(uses.size() == 2);
  CHECK(uses.of(2) == never);
  CHECK(uses.of(3) < uses.of(1));
  uses.retract(&other_reader);
  CHECK(uses.size() == 0);
  CHECK(uses.of(1) == never);
}

TEST_CASE("a missing use is dropped after enough later uses", "[store][promise:bounded-11]") {
  announced_uses uses;
  uses.append(&reader, blocks_in_order{1, 2});
  const blocks_in_order many(announced_uses::max_overtaken + 1, 3);
  uses.append(&reader, many);
  uses.append(&reader, blocks_in_order{1});
  bool is_one_given_up = false;
  for (std::size_t i = 0; i < announced_uses::max_overtaken; ++i) {
    is_one_given_up = is_one_given_up || !used(uses, 3).empty();
  }
  CHECK_FALSE(is_one_given_up);
  const auto before = uses.of(1);
  CHECK(before < uses.of(2));
  CHECK(used(uses, 3) == blocks_in_order{1, 2});
  CHECK(uses.of(1) > before);
  CHECK(uses.of(2) == never);
  CHECK(uses.size() == 1);
  CHECK(used(uses, 1).empty());
  CHECK(uses.size() == 0);
}

TEST_CASE("an abandoned order does not block announcements permanently",
          "[store][promise:bounded-11]") {
  constexpr std::size_t max = announced_uses::max_overtaken;
  penstock::detail::memory_tier memory{0};
  penstock::detail::block_disk disk{"", 0};
  penstock::detail::planned_uses uses{memory, disk};
  const auto tell = [&](const blocks_in_order& blocks) {
    announced_uses order;
    order.append(&reader, blocks);
    uses.tell(std::move(order));
  };
  const auto use = [&](std::uint64_t block, std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) uses.use(block);
  };
  // The first announced use never happens.
  blocks_in_order long_one(max + 2, 3);
  long_one.front() = 1;
  tell(long_one);
  use(3, max);
  CHECK(uses.of(1) != never);
  use(3, 1);
  CHECK(uses.size() == 0);
  // Uses of unannounced blocks do not count, so this short plan remains.
  tell({1, 2});
  use(9, max);
  uses.append(&reader, blocks_in_order{3});
  CHECK(uses.of(3) == never);
  use(1, 1);
  use(9, max);
  CHECK(uses.size() == 1);
  use(9, 1);
  CHECK(uses.size() == 0);
  uses.append(&reader, blocks_in_order{3});
  CHECK(uses.of(3) != never);
}

TEST_CASE("at most the requested number of uses is kept", "[store][promise:bounded-11]") {
  announced_uses uses{5};
  uses.append(&reader, blocks_in_order{1, 2, 3, 4, 5, 6, 7});
  CHECK(uses.size() == 5);
  CHECK(uses.of(6) == never);
  CHECK(used(uses, 1).empty());
  uses.append(&reader, blocks_in_order{6, 7});
  CHECK(uses.size() == 5);
  CHECK(uses.of(5) < uses.of(6));
  uses.retract(&other_reader);
  uses.append(&reader, blocks_in_order{7});
  CHECK(uses.size() == 5);
}
