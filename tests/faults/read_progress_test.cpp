// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/read_supervisor.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "support/catch.hpp"

using penstock::detail::read_progress;
using penstock::detail::read_scope;

TEST_CASE("a progress mark shows the sample being read, and nothing between reads", "[faults]") {
  constexpr std::array<std::uint64_t, 3> samples{70, 80, 90};
  const bool is_exact = GENERATE(true, false);
  read_progress shown;
  shown.prepare(is_exact);
  CHECK_FALSE(shown.observe());
  std::atomic<std::size_t> place{0};
  shown.enter_batch(4, 5);
  std::uint64_t first_turn = 0;
  {
    const read_scope reading{&shown, 12, samples, place};
    const auto first = shown.observe();
    REQUIRE(first);
    first_turn = first->turn;
    CHECK(first->where.str() ==
          std::string{"stage read, epoch 4, batch 5, sample 70 (position 12 of the batch"} +
              (is_exact ? ")" : " or after it)"));
    place = 2;
    const auto last = shown.observe();
    REQUIRE(last);
    CHECK(last->turn == first_turn);
    CHECK(last->where.position == 14);
    CHECK(last->where.sample == 90);
    CHECK(last->where.exact);
  }
  CHECK_FALSE(shown.observe());
  // `place` is stale: the position of the previous chunk is beyond the end of this chunk.
  const read_scope next{&shown, 0, std::span{samples}.last(1), place};
  REQUIRE(shown.observe());
  CHECK(shown.observe()->turn != first_turn);
  CHECK(shown.observe()->where.sample == 90);
  CHECK(shown.observe()->where.position == 0);
}

TEST_CASE("only a hanging read can be abandoned, and only until it returns", "[faults]") {
  constexpr std::array<std::uint64_t, 1> samples{7};
  read_progress shown;
  shown.prepare(true);
  std::atomic<std::size_t> place{0};
  std::uint64_t turn = 0;
  {
    const read_scope reading{&shown, 0, samples, place};
    turn = shown.observe()->turn;
    CHECK_FALSE(shown.is_given_up());
    CHECK(shown.give_up(turn));
    CHECK(shown.is_given_up());
  }
  CHECK_FALSE(shown.is_given_up());
  CHECK_FALSE(shown.give_up(turn));  // no effect, because the read has just returned
  const read_scope next{&shown, 0, samples, place};
  CHECK_FALSE(shown.give_up(turn));  // no effect on another read
  CHECK_FALSE(shown.is_given_up());
}

TEST_CASE("an order that is being made is shown with the batch that needs it", "[faults]") {
  read_progress shown;
  {
    const read_scope ordering{&shown, "order", 6, 2};
    const auto seen = shown.observe();
    REQUIRE(seen);
    CHECK(seen->where.str() == "stage order, epoch 6, batch 2");
    CHECK(shown.give_up(seen->turn));
  }
  CHECK_FALSE(shown.observe());
  CHECK_FALSE(shown.is_given_up());
  const read_scope nobody_looks{nullptr, "order", 6, 2};
}
