// SPDX-License-Identifier: BSL-1.0
#include <chrono>
#include <cmath>
#include <cstdint>

#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/support/stage_probe.hpp>
#include <penstock_ext/report/stats_text.hpp>

#include "support/catch.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

/// Two clocks that advance only on request of a test, and the calibration between them.
struct played_clock {
  explicit played_clock(ps::stats_clock kind = ps::stats_clock::tsc) : calibration(kind, now) {}

  /// Advances both clocks by `time`. A tick is half a nanosecond.
  void pass(std::chrono::nanoseconds time) {
    now.steady += time;
    now.ticks += static_cast<std::uint64_t>(2 * time.count());
  }
  /// Moves only the tick clock, forward or backward.
  void step(std::int64_t ticks) { now.ticks += static_cast<std::uint64_t>(ticks); }
  [[nodiscard]] auto look() { return calibration.add(now); }

  ps::detail::clock_pair now{1'000'000'000, 5ms};
  ps::detail::tick_calibration calibration;
};

}  // namespace

TEST_CASE("the length of a tick agrees with the steady clock", "[observe]") {
  played_clock clock;
  clock.pass(3ms);
  const auto seen = clock.look();
  CHECK(seen.since == 3ms);
  CHECK(std::abs(seen.nanoseconds_per_tick - 0.5) < 1e-9);
  CHECK_FALSE(seen.has_stepped);
}

TEST_CASE("the tick length is constant after a second, so that no sum decreases", "[observe]") {
  played_clock clock;
  clock.pass(1000ms);
  const double first = clock.look().nanoseconds_per_tick;
  for (int turn = 0; turn < 3; ++turn) {
    clock.pass(500ms);
    clock.step(1000 * (turn - 1));  // simulates clock drift
    CHECK(clock.look().nanoseconds_per_tick == first);
  }
}

TEST_CASE("ticks of the steady clock are nanoseconds, and no step is looked for", "[observe]") {
  played_clock clock{ps::stats_clock::steady};
  for (int turn = 0; turn < 3; ++turn) {
    clock.pass(50ms);
    clock.step(1'000'000'000);
    CHECK(clock.look().nanoseconds_per_tick == 1.0);
    CHECK_FALSE(clock.look().has_stepped);
  }
}

TEST_CASE("a clock step in either direction is reported permanently", "[observe]") {
  const auto step = GENERATE(std::int64_t{400'000'000}, std::int64_t{-400'000'000});
  played_clock clock;
  for (int turn = 0; turn < 3; ++turn) {
    clock.pass(100ms);
    CHECK_FALSE(clock.look().has_stepped);
  }
  clock.pass(100ms);
  clock.step(step);
  CHECK(clock.look().has_stepped);
  clock.pass(100ms);
  CHECK(clock.look().has_stepped);
}

TEST_CASE("a change of the clock rate is reported", "[observe]") {
  played_clock clock;
  clock.pass(100ms);
  CHECK_FALSE(clock.look().has_stepped);
  clock.pass(100ms);
  clock.step(20'000'000);  // runs a tenth faster
  CHECK(clock.look().has_stepped);
}

TEST_CASE("a clock that goes back counts as stopped, and the text reports the step", "[observe]") {
  ps::detail::stopwatch watch;
  watch.start(5'000);
  watch.stop(4'000);
  CHECK(watch.read(4'000).ticks == 0);
  watch.start(4'000);
  CHECK(watch.read(3'995).ticks == 0);
  CHECK(watch.read(4'005).ticks == 5);

  ps::loader_stats stats;
  stats.clock = ps::stats_clock::tsc;
  CHECK(to_text(stats).find("clock tsc\n") != std::string::npos);
  stats.clock_has_stepped = true;
  CHECK(to_text(stats).find("clock tsc, which has stepped: times may be wrong") !=
        std::string::npos);
}

TEST_CASE("the clock of this machine advances and has a name", "[observe]") {
  ps::detail::tick_clock clock;
  const std::uint64_t begin = clock.now();
  while (clock.now() == begin) {
  }
  CHECK(clock.now() > begin);
  CHECK(clock.look().since.count() > 0);
  CHECK(clock.look().nanoseconds_per_tick > 0);
  CHECK_FALSE(ps::detail::name_of(clock.source()).empty());
}

TEST_CASE("an ongoing wait counts up to the snapshot", "[observe]") {
  ps::detail::stopwatch watch;
  watch.start(100);
  CHECK(watch.read(150).count == 1);
  CHECK(watch.read(150).ticks == 50);
  watch.start(120);  // no effect, because the watch is already running
  watch.stop(160);
  watch.stop(170);  // no effect, because the watch has already stopped
  CHECK(watch.read(900).count == 1);
  CHECK(watch.read(900).ticks == 60);
  watch.start(1000);
  watch.stop(1001);
  CHECK(watch.read(2000).count == 2);
  CHECK(watch.read(2000).ticks == 61);
}
