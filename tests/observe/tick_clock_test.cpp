// SPDX-License-Identifier: BSL-1.0
#include <chrono>
#include <cmath>
#include <cstdint>

#include <penstock/load/support/loader_observer.hpp>
#include <penstock/observe/support/clocks.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock_ext/report/stats_text.hpp>

#include "observe/played_clocks.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

using played_clock = ps::detail::basic_tick_clock<test::played_clocks>;
using played_observer = ps::detail::basic_loader_observer<played_clock>;

}  // namespace

TEST_CASE("ticks are as long as the steady clock says", "[observe]") {
  const test::played_clocks hands;
  played_clock clock{hands};
  hands.pass(3'000'000);
  const auto seen = clock.look();
  CHECK(seen.since == 3ms);
  CHECK(std::abs(seen.nanoseconds_per_tick - 0.5) < 1e-9);
  CHECK_FALSE(seen.has_stepped);
}

TEST_CASE("after a second the length of a tick stays, so that no sum falls", "[observe]") {
  const test::played_clocks hands;
  played_clock clock{hands};
  hands.pass(1'000'000'000);
  const double first = clock.look().nanoseconds_per_tick;
  for (int turn = 0; turn < 3; ++turn) {
    hands.pass(500'000'000);
    hands.step(1000 * (turn - 1));  // as two clocks do that drift
    CHECK(clock.look().nanoseconds_per_tick == first);
  }
}

TEST_CASE("ticks of the steady clock are nanoseconds, and no step is looked for", "[observe]") {
  test::played_clocks hands;
  hands.kind = ps::stats_clock::steady;
  played_clock clock{hands};
  for (int turn = 0; turn < 3; ++turn) {
    hands.pass(50'000'000);
    hands.step(1'000'000'000);
    CHECK(clock.look().nanoseconds_per_tick == 1.0);
    CHECK_FALSE(clock.look().has_stepped);
  }
  CHECK(clock.source() == ps::stats_clock::steady);
}

TEST_CASE("a clock that steps is told for good, forwards or back", "[observe]") {
  const auto step = GENERATE(std::int64_t{400'000'000}, std::int64_t{-400'000'000});
  const test::played_clocks hands;
  hands.at->ticks = 1'000'000'000;
  played_clock clock{hands};
  for (int turn = 0; turn < 3; ++turn) {
    hands.pass(100'000'000);
    CHECK_FALSE(clock.look().has_stepped);
  }
  hands.pass(100'000'000);
  hands.step(step);
  CHECK(clock.look().has_stepped);
  hands.pass(100'000'000);
  CHECK(clock.look().has_stepped);
}

TEST_CASE("a clock that changes its rate is told", "[observe]") {
  const test::played_clocks hands;
  played_clock clock{hands};
  hands.pass(100'000'000);
  CHECK_FALSE(clock.look().has_stepped);
  hands.pass(100'000'000);
  hands.step(20'000'000);  // a tenth faster
  CHECK(clock.look().has_stepped);
}

TEST_CASE("a clock that goes back counts as standing, and the text says that it has stepped",
          "[observe]") {
  const test::played_clocks hands;
  hands.at->ticks = 1'000'000'000;
  played_clock clock{hands};
  ps::detail::stopwatch watch;
  watch.start(clock.now());
  hands.step(-1'000);
  watch.stop(clock.now());
  CHECK(watch.read(clock.now()).ticks == 0);
  watch.start(clock.now());
  CHECK(watch.read(clock.now() - 5).ticks == 0);
  CHECK(watch.read(clock.now() + 5).ticks == 5);

  ps::loader_stats stats;
  stats.clock = ps::stats_clock::tsc;
  CHECK(to_text(stats).find("clock tsc\n") != std::string::npos);
  stats.clock_has_stepped = true;
  CHECK(to_text(stats).find("clock tsc, which has stepped: times are wrong") != std::string::npos);
}

TEST_CASE("this machine's clock goes on, and is told by its name", "[observe]") {
  ps::detail::tick_clock clock;
  const std::uint64_t begin = clock.now();
  while (clock.now() == begin) {
  }
  CHECK(clock.now() > begin);
  CHECK(clock.look().since.count() > 0);
  CHECK(clock.look().nanoseconds_per_tick > 0);
  CHECK_FALSE(ps::detail::name_of(clock.source()).empty());
}

TEST_CASE("a wait that goes on counts up to the snapshot", "[observe]") {
  const test::played_clocks hands;
  ps::detail::stopwatch watch;
  watch.start(100);
  CHECK(watch.read(150).count == 1);
  CHECK(watch.read(150).ticks == 50);
  watch.start(120);  // goes already
  watch.stop(160);
  watch.stop(170);  // stands already
  CHECK(watch.read(900).count == 1);
  CHECK(watch.read(900).ticks == 60);
  watch.start(1000);
  watch.stop(1001);
  CHECK(watch.read(2000).count == 2);
  CHECK(watch.read(2000).ticks == 61);
}
