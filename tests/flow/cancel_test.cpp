// SPDX-License-Identifier: BSL-1.0
// Tests that a stop request through an external stop token ends the consumer and all workers in any
// state.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/hanging.hpp"
#include "support/numbered.hpp"
#include "support/threads.hpp"

namespace ps = penstock;

TEST_CASE("a stop request ends a consumer that waits, and all workers",
          "[flow][promise:bounded-7]") {
  const bool in_order = GENERATE(true, false);
  const auto before = present_threads();
  const auto around = std::make_shared<hanging::outside>();
  std::stop_source source;
  ps::loader loader{hanging{around, 100, {0, 1, 2, 3}},
                    ps::sequential{},
                    {.batch_size = 10,
                     .workers = 3,
                     .in_order = in_order,
                     .stop = source.get_token(),
                     .tuning = {.chunk = 1}}};
  std::atomic<long> consumer{0};
  std::thread outside{[&] {
    around->wait_until_hung(3);
    while (consumer == 0) std::this_thread::yield();
    wait_until_asleep(consumer);
    source.request_stop();
    around->release();  // lets the blocked reads finish
  }};
  consumer = this_thread_number();
  CHECK_THROWS_AS(samples_in(loader.epoch(0)), ps::cancelled);
  outside.join();
  CHECK(around->reads <= 3);
  CHECK(threads_added_become(before, 0));  // although the loader still exists
  CHECK_FALSE(loader.last_failure());

  // Every later call throws as well.
  CHECK_THROWS_AS(samples_in(loader.epoch(1)), ps::cancelled);
  loader.start({0, 0}, 1);
  CHECK_THROWS_AS(loader.try_next(), ps::cancelled);
  CHECK(around->reads <= 3);
}

TEST_CASE("a stop request ends workers although no consumer waits", "[flow][promise:bounded-7]") {
  const auto before = present_threads();
  std::stop_source source;
  ps::loader loader{numbered{100},
                    ps::sequential{},
                    {.batch_size = 10, .workers = 4, .stop = source.get_token()}};
  SECTION("before the first range") {}
  SECTION("between two ranges") { CHECK(samples_in(loader.epoch(0)) == 100); }
  SECTION("while a batch is held and no slot is free") {
    auto range = loader.epoch(0);
    const auto it = range.begin();
    source.request_stop();
    CHECK(threads_added_become(before, 0));
    CHECK(labels_of(*it).front() == 0);  // the lease stays valid
  }
  source.request_stop();
  CHECK(threads_added_become(before, 0));
  CHECK_THROWS_AS(samples_in(loader.epoch(1)), ps::cancelled);
}

TEST_CASE("a stop request ends an inline read, and its batch is not delivered", "[flow]") {
  std::stop_source source;
  std::uint64_t read = 0;
  ps::loader loader{
      numbered{100} | ps::map([&](auto&& sample) {
        if (++read == 25) source.request_stop();
        return sample;
      }),
      ps::sequential{},
      {.batch_size = 10, .workers = 0, .stop = source.get_token(), .tuning = {.chunk = 2}}};
  std::uint64_t batches = 0;
  const auto count = [&] {
    for (auto& batch : loader.epoch(0)) {
      (void)batch;
      ++batches;
    }
  };
  CHECK_THROWS_AS(count(), ps::cancelled);
  CHECK(batches == 2);
  CHECK(read == 26);  // the two-sample chunk that had already started
  CHECK_THROWS_AS(count(), ps::cancelled);
  CHECK(read == 26);
}

TEST_CASE("a loader made after its stop request delivers nothing", "[flow]") {
  std::stop_source source;
  source.request_stop();
  const numbered data{100};
  const std::size_t workers = GENERATE(0U, 2U);
  ps::loader loader{
      data, ps::sequential{}, {.batch_size = 10, .workers = workers, .stop = source.get_token()}};
  CHECK_THROWS_AS(samples_in(loader.epoch(0)), ps::cancelled);
  CHECK(data.state->reads == 0);
}

TEST_CASE("a stop request takes precedence over leases_exhausted", "[flow]") {
  std::stop_source source;
  const std::size_t workers = GENERATE(0U, 1U);
  ps::loader loader{
      numbered{100},
      ps::sequential{},
      {.batch_size = 10, .workers = workers, .prefetch = 1, .stop = source.get_token()}};
  loader.start({0, 0}, 1);
  const auto first = loader.next();
  const auto second = loader.next();
  source.request_stop();
  CHECK_THROWS_AS(loader.next(), ps::cancelled);
}

TEST_CASE("a stop request reaches the consumer of a transfer, and leases stay valid",
          "[flow][promise:bounded-7]") {
  const ps::cpu_device device;
  auto stream = device.make_stream();
  const auto around = std::make_shared<hanging::outside>();
  std::stop_source source;
  ps::loader loader{
      hanging{around, 100, {50}},
      ps::sequential{},
      device,
      {.batch_size = 10, .workers = 2, .stop = source.get_token(), .tuning = {.chunk = 1}}};
  ps::transfer feed{loader, stream, {.depth = 2}};
  std::optional<decltype(feed)::batch_type> kept;
  ps::detail::waitable_counter has_kept;
  std::thread outside{[&] {
    has_kept.wait([](std::uint32_t now) { return now > 0; });
    around->wait_until_hung(1);
    source.request_stop();
    around->release();
  }};
  const auto keep_first = [&] {
    for (auto& batch : feed.epoch(0)) {
      if (kept) continue;
      kept = std::move(batch);
      has_kept.advance();
    }
  };
  CHECK_THROWS_AS(keep_first(), ps::cancelled);
  outside.join();
  REQUIRE(kept);
  device.synchronize(stream);
  CHECK(labels_of(*kept).front() == 0);
  CHECK_THROWS_AS(samples_in(feed.epoch(0)), ps::cancelled);
}

TEST_CASE("a stop request ends the wait for a retry", "[flow][promise:bounded-7]") {
  const auto before = present_threads();
  const numbered data{100};
  data.state->bad.store(5);
  std::stop_source source;
  constexpr std::chrono::hours long_wait{20};
  ps::loader loader{data,
                    ps::sequential{},
                    {.batch_size = 10,
                     .workers = 1,
                     .stop = source.get_token(),
                     .faults = {.on_error = {.retries = 3,
                                             .initial_backoff = long_wait,
                                             .action = ps::error_action::skip}}}};
  loader.start({0, 0}, 1);
  data.state->arrived.wait([](std::uint32_t now) { return now >= 6; });
  source.request_stop();
  CHECK(threads_added_become(before, 0));  // even though no consumer requests a batch
  CHECK_THROWS_AS(loader.next(), ps::cancelled);
}

TEST_CASE("a stop request waits for a hanging read up to the timeout", "[flow]") {
  const auto around = std::make_shared<hanging::outside>();
  std::stop_source source;
  {
    ps::loader loader{hanging{around, 100, {3}},
                      ps::sequential{},
                      {.batch_size = 10,
                       .workers = 2,
                       .stop = source.get_token(),
                       .faults = {.timeout = std::chrono::milliseconds{1500}},
                       .tuning = {.chunk = 5}}};
    loader.start({0, 0}, 1);
    around->wait_until_hung(1);
    source.request_stop();
    CHECK_THROWS_AS(loader.next(), ps::cancelled);
    CHECK(loader.abandoned_readers() == 1);
  }
  around->release();
  around->wait_until_gone();
}

TEST_CASE("a stop source may outlive the loader, and the loader its source", "[flow]") {
  std::stop_source source;
  {
    ps::loader loader{
        numbered{20}, ps::sequential{}, {.batch_size = 10, .stop = source.get_token()}};
    static_cast<void>(samples_in(loader.epoch(0)));
  }
  source.request_stop();
  ps::loader loader{
      numbered{20}, ps::sequential{}, {.batch_size = 10, .stop = std::stop_source{}.get_token()}};
  CHECK_NOTHROW(samples_in(loader.epoch(0)));
}
