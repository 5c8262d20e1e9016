// SPDX-License-Identifier: BSL-1.0
// Threads that cannot continue sleep: workers without a free slot, and a consumer without a ready
// batch. The kernel's context switch counters show that such a thread does not poll.
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
  // The consumer holds one slot, and five more batches fill the other slots. The loader reads
  // exactly the samples of these six batches.
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
  // Only the consumer issues copies. The loader reads ahead only as far as its slots allow, so
  // device slots and host slots together bound the number of batches.
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

TEST_CASE("a consumer sleeps until its batch is ready", "[flow][promise:bounded-8]") {
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
