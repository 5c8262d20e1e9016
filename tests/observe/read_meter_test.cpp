// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include <penstock/observe/stats.hpp>
#include <penstock/observe/support/meters.hpp>
#include <penstock/observe/support/trace_writer.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// A meter for chunks of four samples that take as long as a test specifies. The clock has two
/// ticks per nanosecond.
struct metered {
  std::uint64_t now = 1'000'000;
  bool is_timed = false;
  ps::detail::read_meter meter{ps::detail::machine_clocks{}, 100'000, 4};
  std::array<std::uint64_t, 4> samples{10, 11, 12, 13};

  void pass(std::uint64_t nanoseconds) { now += 2 * nanoseconds; }
  /// Begins a chunk of `batch`. Returns the clock that times the chunk, or null.
  ps::detail::sample_clock* begin(std::uint64_t batch) {
    is_timed = meter.is_timed(batch);
    return is_timed ? meter.begin(samples.size(), now) : nullptr;
  }
  void end() { meter.end(samples, is_timed, now); }

  /// Reads a chunk of `batch` and times each sample separately; a sample takes `each` nanoseconds.
  /// Returns true if the chunk was timed.
  bool read(std::uint64_t batch, std::uint64_t each) {
    auto* const times = begin(batch);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (times != nullptr) times->at(i, now);
      pass(each);
    }
    end();
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

TEST_CASE("timed runs measure the time of maps", "[observe]") {
  metered reads;
  for (std::uint64_t batch = 0; batch < 3; ++batch) {
    auto* const times = reads.begin(8 * batch);
    REQUIRE(times != nullptr);
    reads.pass(1'000);
    times->begin_transform(reads.now);
    reads.pass(2'000);
    times->end_transform(reads.now);
    reads.pass(500);
    times->begin_transform(reads.now);
    reads.pass(500);
    times->end_transform(reads.now);
    reads.end();
  }
  CHECK(reads.meter.timed_ticks() == 3 * 2 * 4'000);  // a tick is half a nanosecond
  CHECK(reads.meter.transform_ticks() == 3 * 2 * 2'500);
  CHECK(reads.begin(1) == nullptr);
}

TEST_CASE("every chunk is counted, and slower reads are timed more often", "[observe]") {
  const auto [each, every] = GENERATE(table<std::uint64_t, std::uint64_t>(
      {{100, 128}, {900, 128}, {1'000, 8}, {49'000, 8}, {50'000, 1}, {1'000'000, 1}}));
  metered reads;
  for (std::uint64_t batch = 0; batch < 512; ++batch) {
    CHECK(reads.read(batch, each) == (batch % every == 0));
  }
  CHECK(reads.meter.chunks() == 512);
  CHECK(reads.meter.samples() == 2048);
  CHECK(reads.meter.timed() == 2048 / every);
  CHECK(reads.times().count() == 2048 / every);
  CHECK(reads.times().longest_ticks == 2 * each);
}

TEST_CASE("reads that become fast are timed less from then on", "[observe]") {
  metered reads;
  CHECK(reads.read(0, 1'000'000));
  CHECK(reads.read(1, 1'000'000));
  CHECK(reads.read(2, 100));
  CHECK_FALSE(reads.read(3, 1'000'000));
  CHECK(reads.meter.timed() == 12);
}

TEST_CASE("a thread is busy while it works without waiting", "[observe]") {
  ps::detail::worker_watches watches;
  std::uint64_t now = 1'000;
  const auto run = [&](ps::detail::stopwatch& watch, std::uint64_t ticks) {
    watch.start(now);
    now += ticks;
    watch.stop(now);
  };
  CHECK(watches.busy(now) == 0);
  watches.work.start(now);
  now += 20;
  watches.slot.start(now);
  now += 2'000;
  CHECK(watches.busy(now) == 20);  // the busy time does not grow during a wait
  watches.slot.stop(now);
  for (auto* const wait : {&watches.opener, &watches.inactive, &watches.demand, &watches.copy})
    run(*wait, 2'000);
  now += 40;
  CHECK(watches.busy(now) == 60);
  watches.work.stop(now);
  now += 2'000;
  CHECK(watches.busy(now) == 60);
  std::uint64_t sum = 1;
  CHECK(watches.try_add_busy(now, sum));
  CHECK(sum == 61);
}

TEST_CASE("a probe of a wait runs its stopwatch, and one without a stopwatch measures nothing",
          "[observe]") {
  using ps::trace_stage;
  const ps::detail::tick_clock clock;
  ps::detail::trace_writer trace{"waits", 0, 16, clock};
  ps::detail::stopwatch watch;
  {
    const ps::detail::wait_probe probe{trace_stage::wait_for_slot, &watch, clock, &trace};
    const ps::detail::wait_probe none{trace_stage::wait_for_copy, nullptr, clock, &trace};
    const std::uint64_t now = clock.now();
    CHECK(watch.read(now).count == 1);
    CHECK(watch.read(now + 100).ticks >= 100);  // the stopwatch is running
  }
  const auto ticks = watch.read(clock.now()).ticks;
  CHECK(watch.read(clock.now() + 100).ticks == ticks);  // the stopwatch has stopped
  trace.leave();
  std::vector<ps::detail::traced_event> events;
  trace.ring().copy_to(events);
  REQUIRE(events.size() == 1);
  CHECK(events[0].stage == static_cast<std::uint64_t>(trace_stage::wait_for_slot));
  CHECK(events[0].end - events[0].begin == ticks);
}

TEST_CASE("samples that a dataset reads one by one have separate times", "[observe]") {
  metered reads;
  auto* const times = reads.begin(0);
  REQUIRE(times != nullptr);
  for (const std::size_t pass : {1U, 2U}) {  // first the dataset's own read, then a map function
    for (std::size_t i = 0; i < 4; ++i) {
      times->at(i, reads.now);
      reads.pass(100 * pass * (i + 1));
    }
  }
  reads.end();
  const auto slowest = reads.slowest();
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(slowest.samples[i].index == 13 - i);
    CHECK(slowest.samples[i].ticks == 600 * (4 - i));
  }
  CHECK(slowest.samples[4].ticks == 0);
}

TEST_CASE("samples that are read at once share their time, and the first is named", "[observe]") {
  metered reads;
  REQUIRE(reads.begin(0) != nullptr);
  reads.pass(4'000);
  reads.end();
  CHECK(reads.times().count() == 4);
  CHECK(reads.times().total_ticks == 8'000);
  CHECK(reads.slowest().samples[0].index == 10);
  CHECK(reads.slowest().samples[0].ticks == 2'000);
  CHECK(reads.slowest().samples[1].ticks == 0);
}

TEST_CASE("samples that are read at once below a map function have its times added", "[observe]") {
  metered reads;
  auto* const times = reads.begin(0);
  REQUIRE(times != nullptr);
  times->at_all(0, 4, reads.now);
  reads.pass(400);
  for (std::size_t i = 0; i < 4; ++i) {
    times->at(i, reads.now);
    reads.pass(i);
  }
  reads.end();
  CHECK(reads.slowest().samples[0].index == 13);
  CHECK(reads.slowest().samples[0].ticks == 206);
  CHECK(reads.slowest().samples[3].ticks == 200);
}

TEST_CASE("a run that fails is not timed, and a dataset may note any number", "[observe]") {
  metered reads;
  auto* times = reads.begin(0);
  times->abandon();
  reads.end();
  CHECK(reads.meter.samples() == 4);
  CHECK(reads.meter.timed() == 0);

  times = reads.begin(128);
  times->at(1'000, reads.now);
  times->at_all(3, 1'000, reads.now);
  reads.pass(10);
  reads.end();
  CHECK(reads.meter.timed() == 4);
  CHECK(reads.slowest().samples[0].index == 13);
}

TEST_CASE("the ten slowest samples are listed once each, slowest first", "[observe]") {
  ps::detail::slowest_samples kept;
  for (std::uint64_t i = 1; i <= 40; ++i) kept.offer({i, i * 37 % 41});
  kept.offer({10, 100});  // the same sample again, slower
  kept.offer({10, 50});   // the same sample again, faster
  ps::detail::slowest_list all;
  kept.add_to(all);
  CHECK(all.samples[0].index == 10);
  CHECK(all.samples[0].ticks == 100);
  for (std::size_t i = 1; i < 10; ++i) {
    CHECK(all.samples[i].ticks == 41 - i);
    CHECK(all.samples[i].index * 37 % 41 == 41 - i);
  }
}
