// SPDX-License-Identifier: BSL-1.0
#include <penstock/load/batch_range.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// A fake source whose leases are numbers, `per_epoch` of them per epoch. Logs every call.
struct numbers {
  using batch_type = std::unique_ptr<std::uint64_t>;  // move-only, like a lease

  std::uint64_t per_epoch = 3;
  std::optional<std::uint64_t> fails_at;
  bool rejects = false;

  std::uint64_t start(const ps::batch_position& from, std::uint64_t last_epoch) {
    log += "start ";
    if (rejects) throw std::logic_error{"another range is live"};
    next = from.epoch * per_epoch + from.batch;
    end = last_epoch * per_epoch;
    return live = ++tickets;
  }
  bool advance() {
    held.reset();
    if (next == end) return false;
    if (next == fails_at) throw std::runtime_error{"bad batch"};
    held = std::make_unique<std::uint64_t>(next++);
    return true;
  }
  batch_type& current() noexcept { return held; }
  void finish(std::uint64_t ticket) noexcept {
    // a loader also ignores the end of a range that is not live.
    if (ticket == 0 || ticket != live) return;
    log += "finish ";
    live = 0;
    held.reset();
  }

  std::string log;
  std::uint64_t next = 0;
  std::uint64_t end = 0;
  std::uint64_t tickets = 0;
  std::uint64_t live = 0;
  batch_type held;
};

using range = ps::batch_range<numbers>;
static_assert(std::ranges::input_range<range>);
static_assert(!std::ranges::forward_range<range>);
static_assert(std::input_iterator<range::iterator>);
static_assert(std::sentinel_for<std::default_sentinel_t, range::iterator>);
static_assert(std::is_same_v<std::ranges::range_reference_t<range>, numbers::batch_type&>);
static_assert(std::is_same_v<range::batch_type, numbers::batch_type>);
static_assert(std::is_nothrow_move_constructible_v<range> && !std::is_copy_constructible_v<range>);

std::shared_ptr<numbers> flow_of(std::uint64_t per_epoch = 3) {
  auto flow = std::make_shared<numbers>();
  flow->per_epoch = per_epoch;
  return flow;
}

std::vector<std::uint64_t> all_of(range& batches) {
  std::vector<std::uint64_t> seen;
  for (auto& batch : batches) seen.push_back(*batch);
  return seen;
}

}  // namespace

TEST_CASE("a range delivers the batches from its position to the start of its last epoch",
          "[load]") {
  const auto flow = flow_of();
  {
    range batches{flow, {1, 2}, 3};
    CHECK(flow->log.empty());  // nothing is read before begin
    CHECK(all_of(batches) == std::vector<std::uint64_t>{5, 6, 7, 8});
  }
  CHECK(flow->log == "start finish ");
}

TEST_CASE("an empty range has no batch", "[load]") {
  const auto flow = flow_of();
  range batches{flow, {2, 0}, 2};
  CHECK(batches.begin() == batches.end());
  CHECK(all_of(batches).empty());
}

TEST_CASE("a second begin ends the first loop and starts at the first batch", "[load]") {
  const auto flow = flow_of();
  range batches{flow, {0, 0}, 1};
  auto it = batches.begin();
  ++it;
  CHECK(**it == 1);
  it = batches.begin();
  CHECK(**it == 0);
  CHECK(flow->log == "start finish start ");
  CHECK(all_of(batches) == std::vector<std::uint64_t>{0, 1, 2});
  CHECK(all_of(batches) == std::vector<std::uint64_t>{0, 1, 2});
}

TEST_CASE("leaving the loop early ends the range's reading, once", "[load][promise:bounded-6]") {
  const auto flow = flow_of();
  {
    range batches{flow, {0, 0}, 5};
    for (auto& batch : batches) {
      if (*batch == 1) break;
    }
    CHECK(flow->log == "start ");
  }
  CHECK(flow->log == "start finish ");
  CHECK(flow->held == nullptr);
}

TEST_CASE("a range that never began does not end its source", "[load]") {
  const auto flow = flow_of();
  range live{flow, {0, 0}, 1};
  auto it = live.begin();
  { const range other{flow, {0, 0}, 1}; }
  CHECK(flow->log == "start ");
  CHECK(**it == 0);
}

TEST_CASE("a moved range is ended once, by its new owner", "[load]") {
  const auto flow = flow_of();
  {
    std::optional<range> outer;
    {
      range inner{flow, {0, 0}, 1};
      auto it = inner.begin();
      CHECK(**it == 0);
      outer.emplace(std::move(inner));
      ++it;  // the iterator remains valid because the flow has not moved
      CHECK(**it == 1);
    }
    CHECK(flow->log == "start ");
    CHECK(all_of(*outer) == std::vector<std::uint64_t>{0, 1, 2});
  }
  CHECK(flow->log == "start finish start finish ");
}

TEST_CASE("a range returned from a function works in a loop", "[load]") {
  const auto flow = flow_of();
  const auto make = [&flow] { return range{flow, {0, 0}, 2}; };
  std::uint64_t sum = 0;
  for (auto& batch : make()) sum += *batch;
  CHECK(sum == 15);
  CHECK(flow->log == "start finish ");
}

TEST_CASE("a batch may be moved out of the range and kept", "[load]") {
  const auto flow = flow_of();
  std::vector<numbers::batch_type> kept;
  {
    range batches{flow, {0, 0}, 1};
    for (auto& batch : batches) {
      if (*batch != 1) kept.push_back(std::move(batch));
    }
  }
  REQUIRE(kept.size() == 2);
  CHECK(*kept[0] == 0);
  CHECK(*kept[1] == 2);
}

TEST_CASE("an iterator reaches into its batch and steps by either increment", "[load]") {
  const auto flow = flow_of();
  range batches{flow, {0, 0}, 1};
  auto it = batches.begin();
  CHECK(it->get() == flow->held.get());
  CHECK(&*it == &flow->held);
  it++;
  CHECK(**it == 1);
  ++ ++it;
  CHECK(it == batches.end());
  CHECK(range::iterator{} == std::default_sentinel);
}

TEST_CASE("standard algorithms run over a range", "[load]") {
  const auto flow = flow_of(10);
  range batches{flow, {0, 0}, 1};
  CHECK(std::ranges::count_if(batches, [](const auto& batch) { return *batch % 2 == 0; }) == 5);
}

TEST_CASE("exceptions of the flow pass through, and the range can be begun again", "[load]") {
  const auto flow = flow_of();
  range batches{flow, {0, 0}, 1};
  flow->fails_at = 2;
  CHECK_THROWS_AS(all_of(batches), std::runtime_error);
  flow->fails_at = 0;
  CHECK_THROWS_AS(batches.begin(), std::runtime_error);
  flow->fails_at.reset();
  CHECK(all_of(batches) == std::vector<std::uint64_t>{0, 1, 2});
}

TEST_CASE("a range whose begin() is rejected does not end the live one", "[load]") {
  const auto flow = flow_of();
  range live{flow, {0, 0}, 1};
  auto it = live.begin();
  {
    range rejected{flow, {0, 0}, 1};
    flow->rejects = true;
    CHECK_THROWS_AS(rejected.begin(), std::logic_error);
  }
  CHECK(flow->log == "start start ");
  ++it;
  CHECK(**it == 1);
}

TEST_CASE("a range keeps its flow alive", "[load]") {
  auto flow = flow_of();
  const std::weak_ptr<numbers> watch = flow;
  {
    range batches{std::move(flow), {0, 0}, 1};
    CHECK(all_of(batches).size() == 3);
    CHECK_FALSE(watch.expired());
  }
  CHECK(watch.expired());
}
