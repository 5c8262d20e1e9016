// SPDX-License-Identifier: BSL-1.0
// Tests that requests allocate nothing in a running loop. The replaced operator new counts
// allocations of the whole program.
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <penstock/transfer/transfer.hpp>
#include <penstock_ext/serve/batcher.hpp>

#include "ext/serve/requests.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"

namespace ps = penstock;

TEST_CASE("the path of a request allocates nothing", "[serve]") {
  if (ps::detail::checked) return;  // a checked build records each lease
  ps::batcher<request> requests{ps::cpu_device{}, {.max_batch_size = 4, .depth = 3}};
  const auto submit_batch = [&] {
    for (std::uint64_t tag = 0; tag < 3; ++tag) requests.submit(tag, written(tag));
    if (!requests.try_submit(3, written(3))) throw std::logic_error{"there was room"};
  };
  ps::transfer feed{requests, {.depth = 2}};
  submit_batch();
  auto range = feed.epoch(0);
  auto it = range.begin();
  const std::size_t before = test::allocations.load();
  std::uint64_t sum = 0;
  for (int round = 0; round < 20; ++round) {
    submit_batch();
    if (round % 2 != 0) submit_batch();
    for (int i = 0; i < 1 + round % 2; ++i) {
      ++it;
      sum += it->tags().size();
    }
  }
  CHECK(test::allocations.load() - before == 0);
  CHECK(sum == 30 * 4);
}
