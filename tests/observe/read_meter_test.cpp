// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/meters.hpp>

#include "observe/played_clocks.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using played_clock = ps::detail::basic_tick_clock<test::played_clocks>;

/// A meter whose runs of four samples take what a test says.
struct metered {
  test::played_clocks hands{};
  played_clock clock{hands};
  ps::detail::read_meter<played_clock> meter{clock, 4};
  std::array<std::uint64_t, 4> samples{10, 11, 12, 13};

  /// Reads a run of `batch`, each sample in so many nanoseconds, told apart; whether it was timed.
  bool read(std::uint64_t batch, std::int64_t each) {
    auto* const times = meter.begin(batch, samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (times != nullptr) times->at(i);
      hands.pass(each);
    }
    meter.end(samples);
    return times != nullptr;
  }
  [[nodiscard]] ps::duration_stats times() const {
    ps::duration_stats all;
    meter.times().add_to(all);
    return all;
  }
  [[nodiscard]] ps::detail::slowest_list slowest() const {
    ps::detail::slowest_list all;
    meter.slowest().add_to(all);
    return all;
  }
};

}  // namespace

TEST_CASE("of the runs that are timed it is known how long samples were made", "[observe]") {
  metered reads;
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    auto* const times = reads.meter.begin(8 * batch, reads.samples.size());
    REQUIRE(times != nullptr);
    reads.hands.pass(1'000);
    times->begin_transform();
    reads.hands.pass(2'000);
    times->end_transform();
    reads.hands.pass(500);
    times->begin_transform();
    reads.hands.pass(500);
    times->end_transform();
    reads.meter.end(reads.samples);
  }
  CHECK(reads.meter.timed_ticks() == 3 * 2 * 4'000);  // a tick is half a nanosecond
  CHECK(reads.meter.transform_ticks() == 3 * 2 * 2'500);
  CHECK(reads.meter.begin(1, reads.samples.size()) == nullptr);
}

TEST_CASE("every run is counted, and the slower reading is, the more of them are timed",
          "[observe]") {
  const auto [each, every] = GENERATE(table<std::int64_t, std::uint64_t>(
      {{100, 128}, {900, 128}, {1'000, 8}, {49'000, 8}, {50'000, 1}, {1'000'000, 1}}));
  metered reads;
  for (std::uint64_t batch = 0; batch < 512; ++batch) {
    CHECK(reads.read(batch, each) == (batch % every == 0));
  }
  CHECK(reads.meter.chunks() == 512);
  CHECK(reads.meter.samples() == 2048);
  CHECK(reads.meter.timed() == 2048 / every);
  CHECK(reads.times().count() == 2048 / every);
  CHECK(reads.times().longest().count() == 2 * each);
}

TEST_CASE("reads that become fast are timed less from then on", "[observe]") {
  metered reads;
  CHECK(reads.read(0, 1'000'000));
  CHECK(reads.read(1, 1'000'000));
  CHECK(reads.read(2, 100));
  CHECK_FALSE(reads.read(3, 1'000'000));
  CHECK(reads.meter.timed() == 12);
}

TEST_CASE("a thread is busy while it works and waits for nothing", "[observe]") {
  const test::played_clocks hands;
  const played_clock clock{hands};
  ps::detail::worker_meters<played_clock> meters{clock, 4, true};
  hands.pass(1'000);
  CHECK(meters.busy(clock.now()) == 0);
  {
    const auto work = meters.for_work();
    hands.pass(10);
    {
      const auto waits = meters.for_slot();
      hands.pass(1'000);
      CHECK(meters.busy(clock.now()) == 20);  // while it waits too
    }
    hands.pass(10);
    for (int turn = 0; turn < 2; ++turn) {
      const auto opener = meters.for_opener();
      hands.pass(1'000);
    }
    {
      const auto demand = meters.for_demand();
      const auto nothing = meters.for_copy(false);
      hands.pass(1'000);
    }
    {
      const auto copy = meters.for_copy(true);
      hands.pass(1'000);
    }
    hands.pass(10);
    CHECK(meters.busy(clock.now()) == 60);
  }
  hands.pass(1'000);
  CHECK(meters.busy(clock.now()) == 60);
  CHECK(meters.slot().read(clock.now()).ticks == 2'000);
  CHECK(meters.opener().read(clock.now()).count == 2);
  CHECK(meters.demand().read(clock.now()).ticks == 2'000);
  CHECK(meters.copy().read(clock.now()).count == 1);
}

TEST_CASE("samples that a dataset tells apart have times of their own", "[observe]") {
  metered reads;
  auto* const times = reads.meter.begin(0, 4);
  REQUIRE(times != nullptr);
  for (const std::size_t pass : {1U, 2U}) {  // a read below, then a map function
    for (std::size_t i = 0; i < 4; ++i) {
      times->at(i);
      reads.hands.pass(static_cast<std::int64_t>(100 * pass * (i + 1)));
    }
  }
  reads.meter.end(reads.samples);
  const auto slowest = reads.slowest();
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(slowest.samples[i].index == 13 - i);
    CHECK(slowest.samples[i].ticks == 600 * (4 - i));
  }
  CHECK(slowest.samples[4].ticks == 0);
}

TEST_CASE("samples that are read at once share their time, and the first is named", "[observe]") {
  metered reads;
  REQUIRE(reads.meter.begin(0, 4) != nullptr);
  reads.hands.pass(4'000);
  reads.meter.end(reads.samples);
  CHECK(reads.times().count() == 4);
  CHECK(reads.times().total_ticks == 8'000);
  CHECK(reads.slowest().samples[0].index == 10);
  CHECK(reads.slowest().samples[0].ticks == 2'000);
  CHECK(reads.slowest().samples[1].ticks == 0);
}

TEST_CASE("samples that are read at once below a map function have its times added", "[observe]") {
  metered reads;
  auto* const times = reads.meter.begin(0, 4);
  REQUIRE(times != nullptr);
  times->at_all(0, 4);
  reads.hands.pass(400);
  for (std::size_t i = 0; i < 4; ++i) {
    times->at(i);
    reads.hands.pass(static_cast<std::int64_t>(i));
  }
  reads.meter.end(reads.samples);
  CHECK(reads.slowest().samples[0].index == 13);
  CHECK(reads.slowest().samples[0].ticks == 206);
  CHECK(reads.slowest().samples[3].ticks == 200);
}

TEST_CASE("a run that fails is not timed, and a dataset may note any number", "[observe]") {
  metered reads;
  auto* times = reads.meter.begin(0, 4);
  times->abandon();
  reads.meter.end(reads.samples);
  CHECK(reads.meter.samples() == 4);
  CHECK(reads.meter.timed() == 0);

  times = reads.meter.begin(128, 4);
  times->at(1'000);
  times->at_all(3, 1'000);
  reads.hands.pass(10);
  reads.meter.end(reads.samples);
  CHECK(reads.meter.timed() == 4);
  CHECK(reads.slowest().samples[0].index == 13);
}

TEST_CASE("the ten slowest samples are kept, each once, the longest first", "[observe]") {
  ps::detail::slowest_samples kept;
  for (std::uint64_t i = 1; i <= 40; ++i) kept.offer({i, i * 37 % 41});
  kept.offer({10, 100});  // again, and slower
  kept.offer({10, 50});   // again, and faster
  ps::detail::slowest_list all;
  kept.add_to(all);
  CHECK(all.samples[0].index == 10);
  CHECK(all.samples[0].ticks == 100);
  for (std::size_t i = 1; i < 10; ++i) {
    CHECK(all.samples[i].ticks == 41 - i);
    CHECK(all.samples[i].index * 37 % 41 == 41 - i);
  }
}
