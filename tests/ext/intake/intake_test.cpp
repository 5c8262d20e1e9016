// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/intake/intake.hpp>

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <penstock/transfer/transfer.hpp>

#include "ext/intake/clouds.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {
using frames = ps::intake<frame_record>;
using clouds = ps::intake<cloud_record>;
}  // namespace

TEST_CASE("a feed delivers pushed batches in the order of their commits", "[intake]") {
  frames in{ps::cpu_device{}, {.slots = 3}};
  ps::transfer feed{in};
  std::thread producer{[&] {
    for (std::uint64_t number = 0; number < 100; ++number) {
      auto slot = in.acquire();
      write_frame(slot, number);
      slot.commit({.tag = number});
    }
    in.close();
  }};
  std::uint64_t expected = 0;
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.tag() == expected);
    CHECK(batch.number() == expected);
    CHECK(batch.skipped() == 0);
    CHECK(has_frames(batch, expected++));
  }
  producer.join();
  CHECK(expected == 100);
  const auto stats = in.stats();
  CHECK(stats.committed == 100);
  CHECK(stats.delivered == 100);
  CHECK(stats.age.count() == 100);
}

TEST_CASE("a loop over an intake gets batches of varying length", "[intake]") {
  clouds in{ps::cpu_device{}, {{}, {.longest = 50}}, {.slots = 4}};
  for (std::uint64_t number = 1; number < 4; ++number) CHECK(push_cloud(in, number, number * 10));
  in.close();
  std::uint64_t expected = 1;
  for (auto& batch : in.stream()) {
    const auto points = ps::get<"points">(batch);
    REQUIRE(points.size() == 1);
    CHECK(points.length(0) == expected * 10);
    for (const auto point : points[0].flat()) CHECK(point == expected);
    ++expected;
  }
  CHECK(expected == 4);
}
