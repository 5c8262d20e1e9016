// SPDX-License-Identifier: BSL-1.0
// Tests `transfer_options::newest` with loops whose body is the step. The tests count delivered
// frames instead of measuring time. In tests/cuda/newest_test.cpp, the loop body only launches the
// step.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include <penstock/load/loader.hpp>
#include <penstock/transfer/transfer.hpp>

#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/frames.hpp"
#include "support/gated_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;
using frames = frame_queue<ps::cpu_device>;

TEST_CASE("a feed of the newest batches skips older batches and counts them", "[flow]") {
  const std::size_t depth = GENERATE(1U, 2U, 3U);
  frames source{ps::cpu_device{}};
  source.push(3);  // frames 0 to 2
  ps::transfer feed{source, {.depth = depth, .newest = true}};
  std::vector<std::uint64_t> got;
  std::vector<std::uint64_t> skipped;
  for (auto& batch : feed.epoch(0)) {
    CHECK(ps::get<"frame">(batch)[0] == batch.tag());
    got.push_back(batch.tag());
    skipped.push_back(batch.skipped());
    // Adds frame 3, then frames 4 and 5, then frames 6 to 8.
    if (got.size() < 4) source.push(got.size());
  }
  CHECK(got == std::vector<std::uint64_t>{2, 3, 5, 8});
  CHECK(skipped == std::vector<std::uint64_t>{2, 0, 1, 2});
  CHECK(source.taken_back == std::vector<std::uint64_t>{0, 1, 4, 6, 7});
  CHECK(source.free() == frames::slots);
}

TEST_CASE("without newest every batch is handed out", "[flow]") {
  frames source{ps::cpu_device{}};
  source.push(5);
  ps::transfer feed{source, {.depth = 2}};
  std::uint64_t next = 0;
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.tag() == next++);
    CHECK(batch.skipped() == 0);
  }
  CHECK(next == 5);
  CHECK(source.taken_back.empty());
}

TEST_CASE("a feed of the newest batches copies no other batches", "[flow]") {
  frames source{ps::cpu_device{}};
  source.push(6);
  ps::transfer feed{source, {.newest = true}};
  for ([[maybe_unused]] auto& batch : feed.epoch(0)) {
  }
  CHECK(feed.stats().copies == 1);
}

TEST_CASE("samples dropped by a source are added to those dropped by the feed", "[flow]") {
  frames source{ps::cpu_device{}};
  source.dropped = 10;  // dropped before each frame
  source.push(3);
  ps::transfer feed{source, {.newest = true}};
  for (auto& batch : feed.epoch(0)) CHECK(batch.skipped() == 2 * (1 + 10) + 10);
}

TEST_CASE("an error of a live source follows the newest batch before the error", "[flow]") {
  frames source{ps::cpu_device{}};
  source.push(3);
  source.fails = true;
  ps::transfer feed{source, {.newest = true}};
  std::vector<std::uint64_t> got;
  const auto loop = [&] {
    for (auto& batch : feed.epoch(0)) got.push_back(batch.tag());
  };
  CHECK_THROWS_AS(loop(), std::domain_error);
  CHECK(got == std::vector<std::uint64_t>{2});
}

TEST_CASE("a feed of the newest batches takes no batch while leases hold every slot", "[flow]") {
  frames source{ps::cpu_device{}};
  source.push(1);
  ps::transfer feed{source, {.depth = 2, .newest = true}};
  std::vector<decltype(feed)::batch_type> held;
  const auto loop = [&] {
    for (auto& batch : feed.epoch(0)) {
      held.push_back(std::move(batch));
      source.push(2);
    }
  };
  CHECK_THROWS_AS(loop(), ps::leases_exhausted);
  CHECK(held.size() == 2);
  CHECK(source.taken_back == std::vector<std::uint64_t>{1});
}

TEST_CASE("samples that were dropped before a failed copy do not count in the next loop",
          "[flow]") {
  const gated_device device;
  frame_queue<gated_device> source{device};
  source.push(3);
  ps::transfer feed{source, {.newest = true}};
  device.fail_copy(0);
  CHECK_THROWS_AS(feed.epoch(0).begin(), device_fault);
  CHECK(source.taken_back == std::vector<std::uint64_t>{0, 1, 2});
  source.push(1);
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.tag() == 3);
    CHECK(batch.skipped() == 0);
  }
}

TEST_CASE("a loader rejects the option newest", "[flow]") {
  ps::loader loader{numbered{10}, ps::sequential{}, {.batch_size = 1}};
  const auto error =
      test::error_of<ps::option_error>([&] { ps::transfer feed{loader, {.newest = true}}; });
  CHECK(error.option() == "newest");
}
