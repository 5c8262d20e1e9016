// SPDX-License-Identifier: BSL-1.0
// Tests guarantees of the loader core that the public class does not expose: the batch that workers
// help with, the read-ahead distance, and the shutdown after the device has failed on a worker
// thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include <penstock/data/chunk_context.hpp>
#include <penstock/penstock.hpp>

#include "support/at_rest.hpp"
#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/numbered.hpp"
#include "support/threads.hpp"

namespace ps = penstock;

TEST_CASE("all workers help the oldest unfinished batch", "[load][promise:bounded-13]") {
  const numbered data{1000};
  data.state->gate.store(1);
  ps::loader loader{data,
                    ps::sequential{},
                    {.batch_size = 4, .workers = 4, .prefetch = 8, .tuning = {.chunk = 1}}};
  std::thread opener{[&] {
    // Each batch has four chunks. While every read is blocked, all four workers must be in batch 0.
    data.state->arrived.wait([](std::uint32_t count) { return count == 4; });
    CHECK(data.state->running == 4);
    data.state->gate.store(0);
  }};
  auto range = loader.epoch(0);
  auto it = range.begin();
  CHECK(it->number() == 0);
  CHECK(labels_of(*it) == std::vector<std::uint64_t>{0, 1, 2, 3});
  opener.join();
}

TEST_CASE("the read-ahead is limited by the number of slots", "[load][promise:bounded-1]") {
  const numbered data{10'000};
  const auto before = present_threads();
  ps::loader loader{data, ps::sequential{}, {.batch_size = 10, .workers = 3, .prefetch = 4}};
  const auto workers = new_threads(before);
  auto range = loader.epoch(0);
  auto it = range.begin();
  // While the consumer holds the first batch, the workers fill the other four slots and then stop.
  data.state->arrived.wait([](std::uint32_t count) { return count >= 50; });
  CHECK(come_to_rest(workers));
  CHECK(data.state->arrived.load() == 50);
  // Releasing a single slot wakes no worker while batches are ready. A worker continues when half
  // of the slots are free.
  ++it;
  ++it;
  data.state->arrived.wait([](std::uint32_t count) { return count >= 70; });
  CHECK(data.state->arrived.load() == 70);
}

TEST_CASE("a consumer that keeps most slots gets batches in the remaining slots", "[load]") {
  ps::loader loader{
      numbered{1000}, ps::sequential{}, {.batch_size = 10, .workers = 2, .prefetch = 7}};
  std::vector<ps::host_batch<numbered::record_type, ps::cpu_device>> kept;
  std::uint64_t seen = 0;
  for (auto& batch : loader.epoch(0)) {
    CHECK(batch.number() == seen++);
    if (kept.size() < 6) kept.push_back(std::move(batch));  // leaves two of the eight slots
  }
  CHECK(seen == 100);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(labels_of(kept[i]).front() == i * 10);
}

TEST_CASE("a consumer that only polls gets batches", "[load]") {
  ps::loader loader{
      numbered{1000}, ps::sequential{}, {.batch_size = 10, .workers = 2, .prefetch = 7}};
  std::vector<ps::host_batch<numbered::record_type, ps::cpu_device>> kept;
  loader.start({0, 0}, 1);
  std::uint64_t seen = 0;
  while (seen < 100) {
    auto batch = loader.try_next();
    if (!batch) {
      std::this_thread::yield();
      continue;
    }
    CHECK(batch.number() == seen++);
    if (kept.size() < 6)
      kept.push_back(std::move(batch));  // no worker wakes while only a few slots are free
  }
  loader.stop();
}

TEST_CASE("a host slot is not refilled while a copy out of it is held",
          "[load][promise:race-free-1]") {
  const gated_device device;
  const numbered data{1000};
  std::vector<std::byte> to(4096);  // outlives the stream, which may still be copying
  auto stream = device.make_stream();
  ps::loader loader{
      data, ps::sequential{}, device, {.batch_size = 10, .workers = 1, .prefetch = 1}};
  loader.start({0, 0}, 1);
  device.hold_copies();
  for (int i = 0; i < 2; ++i) {
    auto batch = loader.next();
    device.copy_async(to.data(), std::as_const(batch).data(), 400, stream);
    batch.release_after(stream);
  }
  // Both slots wait for blocked copies, so no batch can be ready or be read.
  CHECK_FALSE(loader.try_next());
  CHECK(data.state->arrived.load() == 20);
  device.open_copies();
  auto batch = loader.next();
  REQUIRE(batch);
  CHECK(batch.number() == 2);
  loader.stop();
}

TEST_CASE("a device failure in a worker ends the range, and every later one, with its exception",
          "[load][fault:memory-6]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{
      numbered{1000}, ps::sequential{}, device, {.batch_size = 10, .workers = 2, .prefetch = 2}};
  device.fail_synchronize(1);  // makes the reaper's second wait for a drained slot fail
  ps::transfer feed{loader, stream};
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) (void)batch;
  };
  CHECK_THROWS_AS(consume(), device_fault);
  CHECK_THROWS_AS(consume(), device_fault);
}

TEST_CASE("inline reading reads only the requested samples", "[load]") {
  const numbered data{100};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  loader.start({0, 0}, 1);
  CHECK_FALSE(loader.try_next());
  CHECK(data.state->reads == 0);
  auto batch = loader.next();
  CHECK(data.state->reads == 10);
  loader.stop();
  CHECK_FALSE(loader.next());
}

TEST_CASE("a sampler's exception costs no slot when reading inline", "[load][fault:samples-2]") {
  struct moody {
    std::shared_ptr<int> failures = std::make_shared<int>(5);
    ps::sequential inner;
    [[nodiscard]] std::uint64_t size(std::uint64_t samples) const { return inner.size(samples); }
    [[nodiscard]] auto order(std::uint64_t samples, std::uint64_t epoch) const {
      if ((*failures)-- > 0) throw std::runtime_error("no order today");
      return inner.order(samples, epoch);
    }
  };
  ps::loader loader{numbered{100}, moody{}, {.batch_size = 10, .workers = 0}};
  const auto consume = [&] {
    std::uint64_t batches = 0;
    for (auto& batch : loader.epoch(0)) batches += batch.size() == 10;
    return batches;
  };
  for (int i = 0; i < 5; ++i) CHECK_THROWS_WITH(consume(), "no order today");
  CHECK(consume() == 10);
}

TEST_CASE("a device that fails to wait for a copy costs no slot when reading inline", "[load]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, {.batch_size = 10, .workers = 0}};
  ps::transfer feed{loader, stream};
  const auto consume = [&] {
    std::uint64_t batches = 0;
    for (auto& batch : feed.epoch(0)) batches += batch.size() == 10;
    return batches;
  };
  for (int i = 0; i < 5; ++i) {
    device.fail_synchronize(0);
    CHECK_THROWS_AS(consume(), device_fault);
  }
  CHECK(consume() == 10);
}

namespace {

/// A dataset that reads chunks and throws exceptions with a position beyond the end of the chunk.
struct past_its_end {
  using record_type = ps::record<ps::field<"label", std::uint64_t>>;
  [[nodiscard]] std::uint64_t size() const { return 100; }
  void read_chunk(std::span<const std::uint64_t> indices, const ps::batch_view<record_type>&,
                  const ps::chunk_context& context) const {
    context.at(indices.size() + 5);
    throw std::runtime_error("after the last");
  }
};

}  // namespace

TEST_CASE("a chunk with a failing sample outside of it is named by its first sample",
          "[load][fault:samples-1]") {
  const std::size_t workers = GENERATE(0U, 1U);
  const std::size_t retries = GENERATE(0U, 1U);
  ps::loader loader{past_its_end{},
                    ps::sequential{},
                    {.batch_size = 10,
                     .workers = workers,
                     .faults = {.on_error = {.retries = retries,
                                             .initial_backoff = std::chrono::milliseconds{0}}},
                     .tuning = {.chunk = 5}}};
  loader.start({0, 1}, 1);
  CHECK_THROWS_WITH(loader.next(), "after the last");
  REQUIRE(loader.last_failure());
  CHECK(loader.last_failure()->sample == 10);
  CHECK(loader.last_failure()->position == 0);
  CHECK(loader.last_failure()->exact == (retries != 0));  // a retry reads samples one at a time
}

namespace {

/// A dataset in which two reads block. The read of sample 16 waits for the test. The read of sample
/// 8 waits until the read of sample 16 has started.
struct held_once {
  using record_type = ps::record<ps::field<"label", std::uint64_t>>;
  struct shared {
    ps::detail::waitable_counter reading;  // 1 during the read of sample 16, 2 afterwards
    ps::detail::waitable_counter gate;
  };
  std::shared_ptr<shared> state = std::make_shared<shared>();
  [[nodiscard]] std::uint64_t size() const { return 80; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"label">(out) = index;
    if (index == 8) state->reading.wait([](std::uint32_t now) { return now != 0; });
    if (index != 16) return;
    state->reading.store(1);
    state->gate.wait([](std::uint32_t open) { return open == 1; });
    state->reading.store(2);
  }
};

}  // namespace

TEST_CASE("when a worker fails, the range ends after the reads of the others",
          "[load][fault:memory-6]") {
  const held_once data;
  const gated_device device;
  auto stream = device.make_stream();
  // With three slots, one worker reads batch 2. The other worker waits for a free slot, and this
  // wait fails.
  ps::loader loader{data,
                    ps::sequential{},
                    device,
                    {.batch_size = 8, .workers = 2, .prefetch = 2, .tuning = {.chunk = 8}}};
  ps::transfer feed{loader, stream, {.depth = 1}};
  device.fail_synchronize(0);
  std::thread releaser{[&] {
    data.state->reading.wait([](std::uint32_t now) { return now == 1; });
    for (int turn = 0; turn < 10'000; ++turn) std::this_thread::yield();
    data.state->gate.store(1);
  }};
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) (void)batch;
  };
  CHECK_THROWS_AS(consume(), device_fault);
  CHECK(data.state->reading.load() == 2);
  releaser.join();
}
