// SPDX-License-Identifier: BSL-1.0
// Threads that can't continue sleep: workers without a slot, a consumer without a batch. A thread
// that sleeps in the kernel uses no core. A thread that wakes up to check again would increase its
// count of context switches.
#include <cstdint>
#include <thread>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/asleep.hpp"
#include "support/at_rest.hpp"
#include "support/catch.hpp"
#include "support/numbered.hpp"
#include "support/threads.hpp"

namespace ps = penstock;

TEST_CASE("workers whose slots are all full sleep until the consumer continues",
          "[flow][promise:bounded-8]") {
  const bool in_order = GENERATE(true, false);
  const numbered data{10'000};
  const auto before = present_threads();
  ps::loader loader{data,
                    ps::sequential{},
                    {.batch_size = 10,
                     .workers = 4,
                     .prefetch = 5,
                     .in_order = in_order,
                     .tuning = {.chunk = 3}}};
  const auto workers = new_threads(before);
  REQUIRE(workers.size() == 4);
  const auto bytes = loader.footprint().bytes;
  auto range = loader.epoch(0);
  auto it = range.begin();
  // The consumer holds a slot, and five batches are ahead of it. Exactly the samples of these
  // batches are read.
  data.state->arrived.wait([](std::uint32_t count) { return count >= 60; });
  CHECK(come_to_rest(workers));
  CHECK(look_at(workers.front()).switches > 0);
  CHECK(data.state->arrived.load() == 60);
  CHECK(new_threads(before) == workers);
  CHECK(loader.footprint().bytes == bytes);

  std::uint64_t batches = 1;
  for (++it; it != range.end(); ++it) ++batches;
  CHECK(batches == 1000);
}

TEST_CASE("a stalled consumer holds back its copies and its source", "[flow][promise:bounded-8]") {
  const auto before = present_threads();
  const ps::cpu_device device;
  auto stream = device.make_stream();
  const numbered data{10'000};
  ps::loader loader{
      data, ps::sequential{}, device, {.batch_size = 10, .workers = 2, .prefetch = 3}};
  ps::transfer feed{loader, stream, {.depth = 3}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  // Only the consumer issues copies. The loader reads at most as many batches as fit in its slots,
  // in addition to the copied batches: together at most the slots of both.
  constexpr std::uint32_t max = 10 * (4 + 3);
  data.state->arrived.wait([](std::uint32_t count) { return count >= 40; });
  CHECK(come_to_rest(new_threads(before)));
  const auto arrived = data.state->arrived.load();
  CHECK(arrived <= max);
  CHECK(arrived >= 40);
  std::uint64_t batches = 1;
  for (++it; it != range.end(); ++it) ++batches;
  CHECK(batches == 1000);
}

TEST_CASE("a consumer whose batch is not ready sleeps until it is", "[flow][promise:bounded-8]") {
  const bool in_order = GENERATE(true, false);
  const numbered data{100};
  data.state->gate.store(1);
  const auto before = present_threads();
  ps::loader loader{data,
                    ps::sequential{},
                    {.batch_size = 10, .workers = 2, .in_order = in_order, .tuning = {.chunk = 5}}};
  const auto workers = new_threads(before);
  const long consumer = this_thread_number();
  std::vector<long> all = workers;
  all.push_back(consumer);
  bool rested = false;
  std::thread producer{[&] {
    data.state->arrived.wait([](std::uint32_t count) { return count == 2; });
    rested = come_to_rest(all);
    data.state->gate.store(0);
  }};
  const std::uint64_t samples = samples_in(loader.epoch(0));
  producer.join();
  CHECK(rested);
  CHECK(samples == 100);
}
