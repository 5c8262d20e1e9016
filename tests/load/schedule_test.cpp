// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/detail/schedule.hpp>

#include <atomic>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "support/asleep.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::batch_position;
using ps::detail::schedule;

namespace {

/// A plan with three batches per epoch.
const ps::detail::epoch_plan three{10, 4, ps::last_batch::keep};

}  // namespace

TEST_CASE("the batches of a range are bound in order, over the end of an epoch, and no more",
          "[load]") {
  schedule batches{three};
  CHECK_FALSE(batches.next());
  CHECK(batches.begin({0, 1}, 2) == 5);
  std::vector<batch_position> bound;
  for (std::uint64_t number = 0; const auto next = batches.next(); ++number) {
    CHECK(batches.next()->at == next->at);  // returns the same batch until it is bound
    CHECK(next->number == number);
    CHECK(batches.bind(*next));
    bound.push_back(next->at);
  }
  CHECK(bound == std::vector<batch_position>{{0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}});
}

TEST_CASE("a batch of a range that has ended is not bound", "[load]") {
  schedule batches{three};
  batches.begin({0, 0}, 1);
  const auto first = batches.next();
  REQUIRE(first);
  CHECK(first->number == 0);
  REQUIRE(batches.bind(*first));
  const auto second = batches.next();
  REQUIRE(second);
  CHECK(batches.cancel() == 1);
  CHECK_FALSE(batches.bind(*second));
  CHECK_FALSE(batches.next());
  // The batch cannot be bound in a new range either, even if that range starts at the batch's
  // position.
  CHECK(batches.begin(second->at, 1) == 3);
  CHECK_FALSE(batches.bind(*second));
  const auto again = batches.next();
  REQUIRE(again);
  CHECK(again->at == second->at);
  CHECK(again->number == 1);  // batch numbers continue across ranges
  CHECK(batches.bind(*again));
}

TEST_CASE("an opener waits until its batch is allowed or a stop is requested", "[load]") {
  schedule batches{three};
  batches.begin({0, 0}, 1);
  batches.allow(1, false);
  std::stop_source stop;
  const auto first = batches.wait_until_wanted(stop.get_token());
  REQUIRE(first);
  CHECK(first->number == 0);
  REQUIRE(batches.bind(*first));
  std::atomic<long> number = 0;
  std::atomic<int> wanted = 0;
  std::thread opener{[&] {
    number = this_thread_number();
    while (const auto next = batches.wait_until_wanted(stop.get_token())) {
      if (batches.bind(*next)) ++wanted;
    }
  }};
  while (number == 0) std::this_thread::yield();
  wait_until_asleep(number);
  CHECK(wanted == 0);
  batches.allow(2, false);  // wakes no thread
  wait_until_asleep(number);
  CHECK(wanted == 0);
  batches.wake();
  while (wanted != 1) std::this_thread::yield();
  wait_until_asleep(number);
  batches.allow(9, true);
  while (wanted != 2) std::this_thread::yield();  // no further batch exists
  wait_until_asleep(number);
  stop.request_stop();
  batches.wake();
  opener.join();
  CHECK(wanted == 2);
}

TEST_CASE("a cancellation applies only to batches that are already bound", "[load]") {
  schedule batches{three};
  batches.begin({0, 0}, 1);
  REQUIRE(batches.bind(*batches.next()));
  CHECK_FALSE(batches.is_cancelled(0));
  batches.cancel();
  CHECK(batches.is_cancelled(0));
  CHECK_FALSE(batches.is_cancelled(1));
}

TEST_CASE("an opener waits until a batch is wanted, or for a stop", "[load]") {
  schedule batches{three};
  std::stop_source stop;
  std::optional<bool> got;
  {
    const std::jthread opener{
        [&] { got = batches.wait_until_wanted(stop.get_token()).has_value(); }};
    batches.begin({7, 0}, 8);
  }
  CHECK(got == true);
  batches.cancel();
  {
    const std::jthread opener{
        [&] { got = batches.wait_until_wanted(stop.get_token()).has_value(); }};
    stop.request_stop();
    batches.wake();
  }
  CHECK(got == false);
}
