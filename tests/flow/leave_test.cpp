// SPDX-License-Identifier: BSL-1.0
// Tests the guarantee "bounded". Early exits, exceptions and destruction at any time end all
// threads, leak nothing, and leave the feed usable. AddressSanitizer detects leaks, ThreadSanitizer
// detects races, and the test timeout detects hangs.
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"
#include "support/in_child.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

constexpr std::size_t batch = 16;
constexpr std::uint64_t in_all = 150;  // ten batches, the last of which is short
constexpr std::uint64_t batches = 10;

ps::loader_options options(std::size_t workers, std::size_t prefetch = 3) {
  return {.batch_size = batch, .workers = workers, .prefetch = prefetch, .tuning = {.chunk = 3}};
}

// Counts the batches of a range and checks that they arrive in order.
template <class Range>
std::uint64_t take_all(Range&& range, std::uint64_t leave_at = ~std::uint64_t{0}) {
  std::uint64_t seen = 0;
  for (auto& each : range) {
    if (seen == leave_at) break;
    const auto labels = labels_of(each);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != each.number() * batch + i)
        FAIL("batch " << each.number() << " has label " << labels[i]);
    }
    ++seen;
  }
  return seen;
}

}  // namespace

TEST_CASE("a loop may be left at every batch, and the next epoch is complete",
          "[flow][promise:bounded-6]") {
  for (const std::size_t workers : {0U, 1U, 2U, 4U}) {
    ps::loader loader{numbered{in_all}, ps::sequential{}, options(workers)};
    ps::transfer feed{loader, ps::cpu_device{}.inline_stream(), {.depth = 2}};
    for (std::uint64_t at = 0; at <= 2 * batches; ++at) {
      INFO("workers " << workers << ", left at batch " << at);
      CHECK(take_all(loader.epochs(0, 2), at) == at);
      CHECK(take_all(feed.epochs(0, 2), at) == at);
    }
    CHECK(take_all(feed.epoch(3)) == batches);
  }
}

TEST_CASE("loader and transfer may be destroyed at every batch, in the loop or after it",
          "[flow][promise:bounded-6]") {
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (std::uint64_t at = 0; at <= batches; ++at) {
      ps::cpu_device device;
      auto stream = device.make_stream();
      std::optional<ps::device_batch<numbered::record_type, ps::cpu_device>> kept;
      {
        ps::loader loader{numbered{in_all}, ps::sequential{}, options(workers)};
        ps::transfer feed{std::move(loader), stream};
        std::uint64_t seen = 0;
        for (auto& each : feed.epoch(0)) {
          if (seen++ == at) {
            kept = std::move(each);
            break;
          }
        }
      }
      if (at == batches) {
        CHECK_FALSE(kept.has_value());
      } else {
        stream.synchronize();
        CHECK(kept->number() == at);
        CHECK(labels_of(*kept).front() == at * batch);
      }
    }
  }
}

TEST_CASE("a sample that throws ends the epoch at its batch and is named",
          "[flow][promise:honest-1][fault:samples-1]") {
  for (const std::size_t workers : {0U, 1U, 2U, 5U}) {
    const numbered data{in_all};
    ps::loader loader{data, ps::sequential{}, options(workers)};
    ps::transfer feed{loader, ps::cpu_device{}.inline_stream()};
    for (std::uint64_t bad = 0; bad < in_all; bad += 7) {
      INFO("workers " << workers << ", bad sample " << bad);
      data.state->bad = bad;
      std::uint64_t seen = 0;
      const auto error = test::error_of<bad_sample>([&] {
        for (auto& each : feed.epochs(4, 6)) CHECK(each.number() == seen++);
      });
      CHECK(error.index == bad);
      CHECK(seen == bad / batch);
      REQUIRE(feed.last_failure().has_value());
      CHECK(feed.last_failure()->stage == "read");
      CHECK(feed.last_failure()->epoch == 4);
      CHECK(feed.last_failure()->batch == bad / batch);
      CHECK(feed.last_failure()->sample == bad);
      CHECK(feed.last_failure()->position == bad % batch);
      data.state->bad = numbered::none;
      CHECK(take_all(feed.epoch(0)) == batches);
      CHECK_FALSE(feed.last_failure().has_value());
    }
  }
}

TEST_CASE("leases outlive range, transfer, loader and each other",
          "[flow][promise:race-free-5][promise:bounded-6]") {
  ps::cpu_device device;
  auto stream = device.make_stream();
  std::vector<ps::host_batch<numbered::record_type, ps::cpu_device>> on_host;
  std::vector<ps::device_batch<numbered::record_type, ps::cpu_device>> on_device;
  {
    ps::loader loader{numbered{in_all}, ps::sequential{}, options(2, 6)};
    for (auto& each : loader.epoch(0)) {
      on_host.push_back(std::move(each));
      if (on_host.size() == 4) break;
    }
    ps::transfer feed{loader, stream, {.depth = 4}};
    for (auto& each : feed.epoch(0)) {
      on_device.push_back(std::move(each));
      if (on_device.size() == 3) break;
    }
  }
  stream.synchronize();
  for (std::size_t i = 0; i < 4; ++i) CHECK(labels_of(on_host[i]).front() == i * batch);
  for (std::size_t i = 0; i < 3; ++i) CHECK(labels_of(on_device[i]).front() == i * batch);
  on_host.erase(on_host.begin());
  on_device.erase(on_device.begin() + 1);
  CHECK(labels_of(on_host.back()).front() == 3 * batch);
  CHECK(labels_of(on_device.back()).front() == 2 * batch);
}

TEST_CASE("a lease may be released on another thread", "[flow][promise:race-free-5]") {
  ps::cpu_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{in_all}, ps::sequential{}, options(2)};
  ps::transfer feed{loader, stream, {.depth = 3}};
  for (int round = 0; round < 10; ++round) {
    std::uint64_t seen = 0;
    for (auto& each : feed.epoch(0)) {
      std::thread other{[lease = std::move(each)]() mutable { lease = {}; }};
      other.join();
      ++seen;
    }
    CHECK(seen == batches);
  }
}

TEST_CASE("a loader reads nothing before a loop and nothing after it",
          "[flow][promise:bounded-6]") {
  const numbered data{in_all};
  {
    ps::loader loader{data, ps::sequential{}, options(4)};
    auto range = loader.epochs(0, 3);  // reading has not started
    CHECK(data.state->reads == 0);
    CHECK(take_all(loader.epoch(0)) == batches);
    CHECK(data.state->reads ==
          in_all);  // the range ends with the epoch, and no later sample has been read
  }
  CHECK(data.state->reads == in_all);
}

TEST_CASE("leaving early stops reading after the runs in progress", "[flow][promise:bounded-6]") {
  const numbered data{1000};
  ps::loader loader{data,
                    ps::sequential{},
                    {.batch_size = 10, .workers = 1, .prefetch = 1, .tuning = {.chunk = 1}}};
  loader.start({0, 0}, 1);
  auto first = loader.next();
  // Waits until both slots are full.
  data.state->arrived.wait([](std::uint32_t count) { return count >= 20; });
  // Waits until the worker has passed the gate.
  while (data.state->reads < 20) std::this_thread::yield();
  data.state->gate.store(1);
  first = {};  // the worker opens batch 2 and blocks in its first sample
  data.state->arrived.wait([](std::uint32_t count) { return count == 21; });
  std::thread opener{[&data, consumer = this_thread_number()] {
    wait_until_asleep(consumer);  // the consumer sleeps in `stop`, after the batches were cancelled
    data.state->gate.store(0);
  }};
  loader.stop();
  opener.join();
  CHECK(data.state->running == 0);
  CHECK(data.state->reads == 21);  // nine samples of batch 2 remain unread
}

TEST_CASE("an error in a batch that is never reached is discarded with its range",
          "[flow][fault:samples-1]") {
  const numbered data{in_all};
  data.state->bad = 35;
  ps::loader loader{data,
                    ps::sequential{},
                    {.batch_size = 10, .workers = 1, .prefetch = 5, .tuning = {.chunk = 10}}};
  for (auto& each : loader.epoch(0)) {
    CHECK(each.number() == 0);
    data.state->arrived.wait([](std::uint32_t count) { return count >= 50; });
    break;
  }
  data.state->bad = numbered::none;
  CHECK(samples_in(loader.epoch(0)) == in_all);
}

TEST_CASE("destroying the loader or transfer cancels its loop, and beginning again throws",
          "[flow][fault:consumers-3][fault:consumers-12]") {
  ps::cpu_device device;
  std::optional<ps::loader<numbered, ps::sequential>> loader;
  loader.emplace(numbered{in_all}, ps::sequential{}, options(2));
  auto range = loader->epoch(0);
  auto it = range.begin();
  auto kept = std::move(*it);
  loader.reset();
  CHECK_THROWS_AS(++it, ps::cancelled);
  CHECK(it == range.end());
  CHECK_THROWS_AS(range.begin(), std::logic_error);
  CHECK(labels_of(kept).front() == 0);

  loader.emplace(numbered{in_all}, ps::sequential{}, options(2));
  std::optional<ps::transfer<ps::loader<numbered, ps::sequential>&>> feed;
  feed.emplace(*loader, device.inline_stream());
  auto fed = feed->epoch(0);
  auto at = fed.begin();
  feed.reset();
  CHECK_THROWS_AS(++at, ps::cancelled);
  CHECK(at == fed.end());
  CHECK_THROWS_AS(fed.begin(), std::logic_error);
  CHECK(take_all(loader->epoch(0)) == batches);
}

TEST_CASE("stopping the loader inside its loop cancels the loop, and the loader stays usable",
          "[flow][fault:consumers-12]") {
  for (const std::size_t workers : {0U, 2U}) {
    ps::loader loader{numbered{in_all}, ps::sequential{}, options(workers)};
    ps::transfer feed{loader, {.depth = 2}};
    const auto stop_at = [&](auto range, std::uint64_t at) {
      std::uint64_t seen = 0;
      for (auto& each : range) {
        if (each.number() == at) loader.stop();
        ++seen;
      }
      return seen;
    };
    CHECK_THROWS_AS(stop_at(loader.epoch(0), 3), ps::cancelled);
    CHECK(stop_at(loader.epoch(0), batches - 1) == batches);  // too late to stop the loop
    CHECK_THROWS_AS(stop_at(feed.epoch(0), 3), ps::cancelled);
    CHECK(take_all(feed.epoch(0)) == batches);
  }
}

TEST_CASE("a consumer that waits is cancelled when another thread destroys its loader",
          "[flow][fault:consumers-12]") {
  for (const bool is_fed : {false, true}) {
    const numbered data{1000};
    auto loader =
        std::make_unique<ps::loader<numbered, ps::sequential>>(data, ps::sequential{}, options(2));
    std::optional<ps::transfer<ps::loader<numbered, ps::sequential>&>> feed;
    if (is_fed) feed.emplace(*loader, ps::cpu_device{});
    std::thread other;
    const auto loop = [&](auto range) {
      for (auto& each : range) {
        if (each.number() != 1) continue;
        data.state->gate.store(1);
        other = std::thread{[&, consumer = this_thread_number()] {
          wait_until_asleep(consumer);
          std::thread opener{[&] { data.state->gate.store(0); }};
          loader.reset();
          opener.join();
        }};
      }
    };
    if (is_fed) {
      CHECK_THROWS_AS(loop(feed->epoch(0)), ps::cancelled);
    } else {
      CHECK_THROWS_AS(loop(loader->epoch(0)), ps::cancelled);
    }
    other.join();
  }
}

namespace {

/// A dataset that calls exit() when sample 500 is read.
struct exiting {
  using record_type = numbered::record_type;
  [[nodiscard]] std::uint64_t size() const { return 10'000; }
  void read(std::uint64_t index, ps::sample<record_type>) const {
    if (index == 500) std::exit(7);
  }
};

/// Runs loops until the process exits.
template <class Range>
int loop_forever(Range range) {
  try {
    for (auto& each : range) (void)each;
    return 1;
  } catch (const ps::cancelled&) {
    for (;;) ::pause();
  }
}

}  // namespace

TEST_CASE("exit() in a worker, in the loop or in a report ends a process with a static loader",
          "[flow][fault:hangs-8]") {
  static std::optional<ps::loader<exiting, ps::sequential>> loader;
  static std::optional<ps::transfer<ps::loader<exiting, ps::sequential>&>> feed;
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (const bool is_fed : {false, true}) {
      INFO("workers " << workers << ", fed " << is_fed);
      CHECK(test::in_child([&] {
              loader.emplace(exiting{}, ps::sequential{}, options(workers));
              if (is_fed) feed.emplace(*loader, ps::cpu_device{});
              if (is_fed) return loop_forever(feed->epoch(0));
              return loop_forever(loader->epoch(0));
            }) == 7);
    }
  }
  static std::optional<ps::loader<numbered, ps::sequential>> hanging;
  CHECK(test::in_child([] {
          const numbered data{100};
          data.state->gate.store(1);
          hanging.emplace(
              data, ps::sequential{},
              ps::loader_options{.batch_size = 10,
                                 .workers = 2,
                                 .faults = {.stall_warning = std::chrono::milliseconds{1},
                                            .on_stall = [](const auto&) { std::exit(7); }}});
          return loop_forever(hanging->epoch(0));
        }) == 7);
}
