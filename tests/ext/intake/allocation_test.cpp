// SPDX-License-Identifier: BSL-1.0
// Tests that delivering pushed batches allocates nothing in a running loop. The replaced operator
// new counts allocations of the whole program.
#include <cstddef>
#include <cstdint>

#include <penstock/transfer/transfer.hpp>

#include "ext/intake/clouds.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"

namespace ps = penstock;

TEST_CASE("the path of a pushed batch allocates nothing", "[intake][promise:bounded-14]") {
  if (ps::detail::checked) return;  // a checked build records each lease
  const ps::cpu_device device;
  const auto stream = device.make_stream();
  ps::intake<cloud_record> in{
      device, {{}, {.longest = 9}}, {.slot_count = 4, .when_full = ps::when_full::drop_oldest}};
  ps::transfer feed{in, {.depth = 2}};
  const auto push = [&](std::uint64_t number) {
    if (number % 3 != 0) return push_cloud(in, number, number % 10);
    auto slot = in.acquire();
    return slot.commit_after(stream, {.lengths = {number % 10}, .tag = number});
  };
  push(0);
  push(1);
  auto range = feed.epoch(0);
  auto it = range.begin();
  const std::size_t before = test::allocations.load();
  std::uint64_t sum = 0;
  for (std::uint64_t number = 0; number < 100; ++number) {
    push(number);
    push(number + 1);
    ++it;
    sum += it->size();
  }
  CHECK(test::allocations.load() - before == 0);
  CHECK(sum == 100);
}
