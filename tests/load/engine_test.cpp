// What the engine promises beyond the loader's face: who helps whom, how far it reads ahead, and what
// becomes of it when the device fails under a worker.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

TEST_CASE("all workers help the oldest unfinished batch", "[load]") {
  const numbered data{1000};
  data.state->gate.store(1);
  ps::loader loader{
      data, ps::sequential{}, {.batch_size = 4, .workers = 4, .prefetch = 8, .run = 1}};
  std::thread opener{[&] {
    // Four workers, four runs a batch: with every read held, all four must be in batch 0.
    data.state->arrived.wait([](std::uint32_t count) { return count == 4; });
    CHECK(data.state->running == 4);
    data.state->gate.store(0);
  }};
  auto range = loader.epoch(0);
  auto it = range.begin();
  CHECK(it->index() == 0);
  CHECK(labels_of(*it) == std::vector<std::uint64_t>{0, 1, 2, 3});
  opener.join();
}

TEST_CASE("no more is read ahead than there are slots", "[load]") {
  const numbered data{10'000};
  ps::loader loader{data, ps::sequential{}, {.batch_size = 10, .workers = 3, .prefetch = 4}};
  auto range = loader.epoch(0);
  auto it = range.begin();
  // Holding the first batch, the workers can fill the four other slots and then have none.
  data.state->arrived.wait([](std::uint32_t count) { return count >= 50; });
  CHECK(data.state->arrived.load() == 50);
  // One slot that comes back wakes nobody while batches are ready; with half of them, a worker goes on.
  ++it;
  ++it;
  data.state->arrived.wait([](std::uint32_t count) { return count >= 70; });
  CHECK(data.state->arrived.load() == 70);
}

TEST_CASE("a consumer that keeps most slots is served out of those that come back, one by one",
          "[load]") {
  ps::loader loader{
      numbered{1000}, ps::sequential{}, {.batch_size = 10, .workers = 2, .prefetch = 7}};
  std::vector<ps::host_batch<numbered::record_type, ps::host_device>> kept;
  std::uint64_t seen = 0;
  for (auto& batch : loader.epoch(0)) {
    CHECK(batch.index() == seen++);
    if (kept.size() < 6) kept.push_back(std::move(batch));  // two of eight slots are left to turn
  }
  CHECK(seen == 100);
  for (std::size_t i = 0; i < kept.size(); ++i) CHECK(labels_of(kept[i]).front() == i * 10);
}

TEST_CASE("a consumer that only asks now and then is served too", "[load]") {
  ps::loader loader{
      numbered{1000}, ps::sequential{}, {.batch_size = 10, .workers = 2, .prefetch = 7}};
  std::vector<ps::host_batch<numbered::record_type, ps::host_device>> kept;
  loader.start({0, 0}, 1);
  std::uint64_t seen = 0;
  while (seen < 100) {
    auto batch = loader.try_next();
    if (!batch) {
      std::this_thread::yield();
      continue;
    }
    CHECK(batch.index() == seen++);
    if (kept.size() < 6) kept.push_back(std::move(batch));  // what is left wakes nobody by itself
  }
  loader.stop();
}

TEST_CASE("a host slot is not refilled while a copy out of it is held", "[load]") {
  const gated_device device;
  const numbered data{1000};
  auto stream = device.make_stream();
  ps::loader loader{
      data, ps::sequential{}, device, {.batch_size = 10, .workers = 1, .prefetch = 1}};
  loader.start({0, 0}, 1);
  std::vector<std::byte> to(4096);
  device.hold_copies();
  for (int i = 0; i < 2; ++i) {
    auto batch = loader.next();
    device.copy_async(to.data(), std::as_const(batch).data(), 400, stream);
    batch.release_after(stream);
  }
  // Both slots are on their way through held copies: nothing can be ready, nothing can be read.
  CHECK_FALSE(loader.try_next());
  CHECK(data.state->arrived.load() == 20);
  device.open_copies();
  auto batch = loader.next();
  REQUIRE(batch);
  CHECK(batch.index() == 2);
  loader.stop();
}

TEST_CASE(
    "a device that fails under a worker ends the range with its exception, and every later one",
    "[load]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{
      numbered{1000}, ps::sequential{}, device, {.batch_size = 10, .workers = 2, .prefetch = 2}};
  device.fail_synchronize(1);  // the reaper's second wait for a drained slot
  ps::transfer feed{loader, stream};
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) (void)batch;
  };
  CHECK_THROWS_AS(consume(), device_fault);
  CHECK_THROWS_AS(consume(), device_fault);
}

TEST_CASE("inline reading reads only what is asked for", "[load]") {
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
