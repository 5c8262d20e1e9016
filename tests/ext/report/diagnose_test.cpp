// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/report/diagnose.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "observe/played_loop.hpp"
#include "support/catch.hpp"

namespace ps = penstock;
using ps::bottleneck;
using test::played_loop;

namespace {

ps::diagnosis verdict_on(const played_loop& loop) {
  const auto all = loop.play().stats;
  ps::transfer_stats none = all - all;
  none.age = {};
  return ps::diagnose(none, all, loop.cores);
}

/// Returns the gain from changing the options of a simulated loop.
double played_gain(const played_loop& before, const played_loop& after) {
  return before.play().time / after.play().time - 1;
}

/// Returns true if the diagnosed gain predicts the time of the loop to within a tenth.
bool is_near(double gain, double played) { return std::abs((1 + gain) / (1 + played) - 1) <= 0.1; }

}  // namespace

TEST_CASE("the diagnosis names the slowest part of 54 loops and the gain of more workers",
          "[report]") {
  constexpr std::array costs{1.0, 3.0, 10.0};
  for (const double load : costs) {
    for (const double copy : costs) {
      for (const double body : costs) {
        for (const std::size_t workers : {1U, 2U}) {
          CAPTURE(load, copy, body, workers);
          const played_loop loop{.load = load, .copy = copy, .body = body, .workers = workers};
          const auto said = verdict_on(loop);
          CAPTURE(said.str());
          const double reading = load / static_cast<double>(workers);
          if (body >= (std::max)(reading, copy)) {
            CHECK(said.limit == bottleneck::step);
            CHECK(said.gain == 0);
          } else if (reading > copy) {
            CHECK(said.limit == bottleneck::workers);
            played_loop better = loop;
            better.workers = said.wanted_workers;
            if (copy <= body) CHECK(is_near(said.gain, played_gain(loop, better)));
          } else if (copy > reading) {
            CHECK(said.limit == bottleneck::copy);
            CHECK(said.gain == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("for reads that wait for a disk the diagnosis suggests more workers than cores",
          "[report]") {
  const played_loop loop{
      .load = 40, .computing = 0.02, .copy = 0.1, .body = 1, .workers = 4, .cores = 2};
  const auto said = verdict_on(loop);
  CHECK(said.limit == bottleneck::storage);
  CHECK(said.wanted_workers >= 38);
  played_loop better = loop;
  better.workers = said.wanted_workers;
  CHECK(is_near(said.gain, played_gain(loop, better)));
  CHECK_THAT(said.str(),
             Catch::Matchers::StartsWith("I/O-bound: the loop waits ") &&
                 Catch::Matchers::Contains(".workers = " + std::to_string(said.wanted_workers)));
}

TEST_CASE("for reads that wait the diagnosis suggests lookahead if the source supports it",
          "[report]") {
  const played_loop waiting{
      .load = 40, .computing = 0.02, .copy = 0.1, .body = 1, .workers = 4, .cores = 2};
  const auto said_of = [&](const ps::ahead_stats& ahead, const played_loop* loop = nullptr) {
    auto all = (loop != nullptr ? *loop : waiting).play().stats;
    auto none = all - all;
    none.age = {};
    all.loader->ahead = ahead;
    return ps::diagnose(none, all, loop != nullptr ? loop->cores : waiting.cores);
  };
  const auto plain = said_of({});
  CHECK(plain.limit == bottleneck::storage);
  CHECK(plain.wanted_read_ahead == 0);
  CHECK_THAT(plain.remedy, !Catch::Matchers::Contains(".lookahead_bytes"));
  constexpr std::uint64_t max = static_cast<std::uint64_t>(-1);
  // The loader sends no hints. The suggested amount is the capacity of the source, but initially at
  // most 64 MiB.
  const auto unreported = said_of({.source_bytes = 1000});
  CHECK(unreported.wanted_read_ahead == 1000);
  CHECK(unreported.remedy ==
        plain.remedy +
            " Or .lookahead_bytes = 1000: the source can prefetch samples; the gain is not known.");
  CHECK(unreported.gain == plain.gain);
  CHECK(said_of({.source_bytes = max}).wanted_read_ahead == 64U << 20U);
  const played_loop many{
      .load = 400, .computing = 0.001, .copy = 0.1, .body = 1, .workers = 256, .cores = 2};
  const auto fast = said_of({.source_bytes = 1000}, &many);
  CHECK(fast.limit == bottleneck::storage);
  CHECK(fast.wanted_read_ahead == 1000);
  CHECK_THAT(fast.remedy, Catch::Matchers::StartsWith("Faster storage"));
  const played_loop computes{.load = 10, .copy = 0.1, .body = 1, .workers = 4, .cores = 4};
  CHECK(said_of({.source_bytes = 1000}, &computes).wanted_read_ahead == 0);
  // Some hints come too late.
  const auto late = said_of({.max_bytes = 300, .samples = 80, .late = 11, .source_bytes = 1000});
  CHECK(late.wanted_read_ahead == 600);
  CHECK_THAT(late.remedy,
             Catch::Matchers::EndsWith(
                 " 11 samples were announced too late: .lookahead_bytes = 600; the gain is not "
                 "known."));
  CHECK(said_of({.max_bytes = 300, .samples = 80, .late = 10, .source_bytes = 1000}).remedy ==
        plain.remedy);
  CHECK(said_of({.max_bytes = 700, .samples = 8, .late = 2, .source_bytes = 1000})
            .wanted_read_ahead == 1000);
  CHECK(said_of({.max_bytes = max - 1, .samples = 8, .late = 2, .source_bytes = max})
            .wanted_read_ahead == max);
  const auto bound = said_of({.max_bytes = 1000, .samples = 8, .late = 2, .source_bytes = 1000});
  CHECK(bound.wanted_read_ahead == 0);
  CHECK_THAT(bound.remedy, Catch::Matchers::Contains("more than its 1000 bytes"));
  const auto failing = said_of({.max_bytes = 1000, .failed = 3, .source_bytes = 1000});
  CHECK_THAT(failing.remedy, Catch::Matchers::Contains("throws when it receives prefetch hints"));
}

TEST_CASE("the diagnosis does not count inactive workers", "[report]") {
  const auto fixed = played_loop{.load = 10, .copy = 0.1, .body = 1, .workers = 2}.play().stats;
  REQUIRE(fixed.loader);
  REQUIRE(fixed.loader->age.count() > 0);
  auto tuned = fixed;
  tuned.loader->workers = 16;
  tuned.loader->wait_while_inactive = {14, 14 * tuned.loader->age};
  auto none = fixed - fixed;
  none.age = {};
  none.loader->age = {};
  const auto said = ps::diagnose(none, tuned, 8);
  CHECK(said.workers == 2);
  CHECK(said.str() == ps::diagnose(none, fixed, 8).str());
  CHECK(said.limit == bottleneck::workers);
}

TEST_CASE("with workers = automatic the diagnosis names max_workers instead of workers",
          "[report]") {
  auto loop = played_loop{.load = 10, .copy = 0.1, .body = 1, .workers = 2}.play().stats;
  loop.loader->workers_are_automatic = true;
  auto none = loop - loop;
  none.age = {};
  none.loader->age = {};
  const auto capped = ps::diagnose(none, loop, 16);
  REQUIRE(capped.wanted_workers == 10);
  CHECK_THAT(capped.remedy, Catch::Matchers::StartsWith(".tuning.max_workers = 10: expected +"));
  // Two of sixteen workers are active, so the loop has not reached its limit.
  loop.loader->workers = 16;
  loop.loader->wait_while_inactive = {14, 14 * loop.loader->age};
  CHECK_THAT(
      ps::diagnose(none, loop, 16).remedy,
      Catch::Matchers::StartsWith("Let the loop continue: .workers = automatic may use up to 16"));

  auto idle = played_loop{.load = 1, .copy = 0.1, .body = 4, .workers = 8}.play().stats;
  idle.loader->workers_are_automatic = true;
  CHECK_THAT(ps::diagnose(none, idle, 16).remedy,
             Catch::Matchers::Contains(", .tuning.max_workers = 1 would suffice"));
  auto slow = played_loop{.load = 10, .workers = 1, .throttled = 0.3}.play().stats;
  slow.loader->workers_are_automatic = true;
  CHECK_THAT(ps::diagnose(none, slow, 16).remedy,
             Catch::Matchers::Contains("fewer workers (.tuning.max_workers)"));
}

TEST_CASE("for reads that compute the diagnosis does not suggest more workers than cores",
          "[report]") {
  const played_loop loop{.load = 10, .copy = 0.1, .body = 1, .workers = 4, .cores = 4};
  const auto said = verdict_on(loop);
  CHECK(said.limit == bottleneck::processors);
  CHECK(said.gain == 0);
  CHECK_THAT(said.sentence,
             Catch::Matchers::StartsWith("CPU-bound: ") && Catch::Matchers::EndsWith("of 4 cores"));
}

TEST_CASE("workers waiting for a core do not wait for a disk", "[report]") {
  for (const bool reports_queues : {true, false}) {
    CAPTURE(reports_queues);
    const auto said = verdict_on({.load = 10,
                                  .copy = 0.1,
                                  .body = 1,
                                  .workers = 8,
                                  .cores = 2,
                                  .reports_queues = reports_queues});
    CHECK(said.limit == bottleneck::processors);
    CHECK_THAT(said.sentence, Catch::Matchers::EndsWith("reading takes 1.8 of 2 cores"));
  }
  // Other programs use one of the two cores.
  const auto all =
      played_loop{.load = 10, .copy = 0.1, .body = 1, .workers = 4, .cores = 1}.play().stats;
  ps::transfer_stats none = all - all;
  none.age = {};
  const auto said = ps::diagnose(none, all, 2);
  CHECK(said.limit == bottleneck::processors);
  CHECK_THAT(said.sentence,
             Catch::Matchers::EndsWith("4.0 of 4 workers are busy, 23 % of that computing and 77 % "
                                       "waiting for a core, on 2 cores, of which other threads use "
                                       "1.0"));
  // Workers mostly wait for the disk, and briefly for other programs.
  played_loop waits{
      .load = 40, .computing = 0.02, .copy = 0.1, .body = 1, .workers = 4, .cores = 2};
  waits.reports_queues = false;
  auto reads = waits.play().stats;
  none = reads - reads;
  none.age = {};
  reads.loader->run_queue = reads.loader->read.busy / 10;
  CHECK(ps::diagnose(none, reads, 2).limit == bottleneck::storage);
}

TEST_CASE("the diagnosis names other threads that keep the loop's thread off the cores",
          "[report]") {
  // Measured next to a busy process on two cores. The loop and its worker share one core, so the
  // body takes twice as long and the worker waits for slots.
  auto all =
      played_loop{.load = 0.3, .copy = 0.001, .body = 0.6, .workers = 1, .cores = 2}.play().stats;
  ps::transfer_stats none = all - all;
  none.age = {};
  all.step.run_queue = all.step.busy / 2;
  auto said = ps::diagnose(none, all, 2);
  CHECK(said.limit == bottleneck::processors);
  CHECK(said.busy_cores == Approx(1.0).margin(0.01));
  CHECK(said.gain == 0);
  CHECK_THAT(said.sentence, Catch::Matchers::StartsWith(
                                "CPU-bound: for 50 % of the time the loop's thread is ready to run "
                                "but gets none of the 2 cores, of which other threads use "
                                "1.0"));
  CHECK_THAT(said.remedy, Catch::Matchers::StartsWith("Fewer programs and threads"));
  // A short wait for a core is normal.
  all.step.run_queue = all.step.busy / 10;
  CHECK(ps::diagnose(none, all, 2).limit == bottleneck::step);
  // Without other programs, the loop's own threads use all cores.
  all.step.run_queue = all.step.busy / 5;
  CHECK(ps::diagnose(none, all, 1).limit != bottleneck::processors);
  // A loop without workers reads on its own thread and waits for a core during reads.
  ps::loader_stats alone;
  alone.step.batches = 1000;
  alone.step.busy = std::chrono::milliseconds{100};
  alone.read.busy = std::chrono::milliseconds{900};
  alone.step.run_queue = std::chrono::milliseconds{500};
  said = ps::diagnose({}, alone, 2);
  CHECK(said.busy_cores == Approx(0.5));
  CHECK_THAT(said.sentence, Catch::Matchers::StartsWith("CPU-bound: for 50 % of the time"));
}

TEST_CASE("if workers use nearly all cores, a waiting body is not blamed", "[report]") {
  using std::chrono::milliseconds;
  auto all = played_loop{.load = 10, .copy = 0.1, .body = 1, .workers = 4, .cores = 2}.play().stats;
  ps::transfer_stats none = all - all;
  none.age = {};
  all.step.busy = milliseconds{1000};
  all.wait_for_batch.time = milliseconds{2000};
  all.wait_for_copy.time = {};
  all.loader->read.busy = milliseconds{12000};
  all.loader->processor = milliseconds{5700};
  const auto said = ps::diagnose(none, all, 2);
  CHECK(said.limit == bottleneck::processors);
  CHECK(said.busy_cores == 2);
  CHECK_THAT(said.sentence, Catch::Matchers::EndsWith("; reading takes 1.9 of 2 cores"));
  all.loader->processor = milliseconds{4700};
  CHECK_THAT(ps::diagnose(none, all, 2).sentence,
             Catch::Matchers::EndsWith("; reading and the loop's body take 1.9 of 2 cores"));
}

TEST_CASE("if no part is much slower than the others, none is blamed", "[report]") {
  // The only worker is always busy, and most cores are idle, but a second worker would gain
  // nothing.
  auto all = played_loop{.load = 1, .copy = 1, .body = 1}.play().stats;
  all.wait_for_batch.time = all.step.busy / 10;
  all.loader->read.busy = all.step.busy + all.wait_for_batch.time;
  all.loader->processor = all.loader->read.busy;
  all.step.busy += all.step.busy / 12;
  ps::transfer_stats none = all - all;
  none.age = {};
  const auto said = ps::diagnose(none, all, 16);
  CHECK(said.limit == bottleneck::mixed);
  CHECK(said.gain == 0);
  CHECK_THAT(said.sentence, Catch::Matchers::StartsWith("mixed: the loop waits "));
}

TEST_CASE("for a loop that reads itself the diagnosis suggests workers if they would help",
          "[report]") {
  const auto of = [](double reading) {
    ps::loader_stats all;
    all.step.batches = 1000;
    all.step.busy = std::chrono::microseconds{1000};
    all.read.busy = std::chrono::nanoseconds{static_cast<std::int64_t>(1e9 * reading)};
    return ps::diagnose(ps::loader_stats{}, all, 8);
  };
  // At 1 ms per batch, more workers help until handing over a batch takes as long as reading it.
  const auto slow = of(1.0);
  CHECK(slow.limit == bottleneck::workers);
  CHECK(slow.wanted_workers == 8);
  CHECK(slow.gain > 6);
  // At 5 us per batch, as for bytes in memory, a worker would only add the handover.
  const auto fast = of(0.005);
  CHECK(fast.limit == bottleneck::processors);
  CHECK(fast.gain == 0);
  CHECK_THAT(fast.sentence, Catch::Matchers::EndsWith("as fast as workers would deliver them"));
}

TEST_CASE("no share of the time exceeds 100 %, even for throttled cores", "[report]") {
  CHECK(verdict_on({.load = 10, .workers = 1, .throttled = 7}).throttled == 1);
}

TEST_CASE("throttling of the container is reported first", "[report]") {
  const auto said = verdict_on({.load = 10, .workers = 1, .throttled = 0.3});
  CHECK(said.limit == bottleneck::quota);
  CHECK_THAT(said.sentence, Catch::Matchers::StartsWith("throttled: for 30 % of the time"));
}

TEST_CASE("slow samples are distinguished from too few workers", "[report]") {
  // A batch takes 8 workers 0.125 units. One batch in 20 has a sample of 30 units, longer than the
  // prefetched batches last.
  const played_loop loop{
      .load = 1, .copy = 0.1, .body = 1, .workers = 8, .slow_every = 20, .slow = 30};
  const auto said = verdict_on(loop);
  CAPTURE(said.str());
  CHECK(said.limit == bottleneck::slow_samples);
  played_loop better = loop;
  better.prefetch = 64;
  CHECK(is_near(said.gain, played_gain(loop, better)));
  CHECK_THAT(said.remedy, Catch::Matchers::StartsWith("Raise .prefetch"));
}

TEST_CASE("a loop that reads itself may be copy-bound", "[report]") {
  ps::transfer_stats none;
  ps::transfer_stats all;
  all.step.batches = 100;
  all.step.busy = std::chrono::seconds{1};
  all.wait_for_copy.time = std::chrono::seconds{5};
  all.ahead = {100, 200};
  all.loader.emplace();
  none.loader.emplace();
  all.loader->read.busy = std::chrono::milliseconds{100};
  CHECK(ps::diagnose(none, all, 16).limit == bottleneck::copy);
  all.loader.reset();
  none.loader.reset();
  CHECK(ps::diagnose(none, all, 16).limit == bottleneck::copy);
}

TEST_CASE("if no copy runs ahead despite free slots, leases or reading are blamed", "[report]") {
  auto all = played_loop{.load = 0.2, .copy = 1, .body = 1, .depth = 1}.play().stats;
  auto none = all - all;
  none.age = {};
  all.depth = 8;
  auto said = ps::diagnose(none, all, 16);
  CHECK(said.limit == bottleneck::depth);
  CHECK(said.remedy == "Leases hold the slots: end them sooner, or raise .depth.");
  CHECK(said.gain == 0);
  all.loader->workers = 0;
  all.wait_for_batch = {};
  said = ps::diagnose(none, all, 16);
  if (said.limit == bottleneck::depth) {
    CHECK(said.remedy == "Read in a worker: .workers = 1.");
    CHECK(said.gain == 0);
  }
}

TEST_CASE("the loop's body as the step is not reported as an idle device", "[report]") {
  ps::transfer_stats none;
  ps::transfer_stats all;
  all.age = std::chrono::seconds{1};
  all.step = {1000, 1000, 1000, std::chrono::seconds{1}};
  using std::chrono::microseconds;
  all.device = {10, microseconds{10}, {}, microseconds{40}, microseconds{200}};
  CHECK(ps::diagnose(none, all, 4).limit == bottleneck::launches);
  all.runs_inline = true;
  CHECK(ps::diagnose(none, all, 4).limit == bottleneck::step);
}

TEST_CASE("one device slot makes a loop wait for each copy", "[report]") {
  for (const double copy : {0.5, 1.0, 2.0}) {
    const played_loop loop{.load = 0.2, .copy = copy, .body = 1, .depth = 1};
    const auto said = verdict_on(loop);
    CAPTURE(copy, said.str());
    CHECK(said.limit == bottleneck::depth);
    played_loop better = loop;
    better.depth = 3;
    CHECK(is_near(said.gain, played_gain(loop, better)));
  }
}

TEST_CASE("leases that are held too long are reported", "[report]") {
  const played_loop loop{.load = 0.2, .copy = 0.1, .body = 1, .kept = 9};
  const auto said = verdict_on(loop);
  CAPTURE(said.str());
  CHECK(said.limit == bottleneck::leases);
  played_loop better = loop;
  better.kept = 0;
  CHECK(is_near(said.gain, played_gain(loop, better)));
}

TEST_CASE("a device that delays copies is not reported as a slow loader", "[report]") {
  auto all = played_loop{.load = 1, .copy = 0.1, .body = 0.1, .workers = 4}.play().stats;
  // On a GPU, the loop body only queues the step. The host waits for batches because slots are
  // returned late.
  all.wait_for_batch.time = 20 * all.step.busy;
  all.loader->wait_for_copy.time = 10 * all.loader->wait_for_demand.time + all.wait_for_batch.time;
  ps::transfer_stats none = all - all;
  none.age = {};
  CHECK(ps::diagnose(none, all, 16).limit == bottleneck::device);
  using std::chrono::milliseconds;
  all.device = {1, milliseconds{2}, {}, {}, milliseconds{1}};
  CHECK(ps::diagnose(none, all, 16).limit == bottleneck::copy);
  all.device = {1, milliseconds{1}, {}, {}, milliseconds{2}};
  CHECK(ps::diagnose(none, all, 16).limit == bottleneck::device);
}

TEST_CASE("the explanation answers the four questions in their order", "[report]") {
  const played_loop loop{
      .load = 3, .computing = 1, .copy = 0.1, .body = 1, .workers = 1, .cores = 16};
  CHECK(
      ps::to_string(verdict_on(loop)) ==
      "loader: waited for batches during 63 % of the time, 1.0 of 1 workers busy\n"
      "copy: waited for copies during 3 %; leases 0 %\n"
      "step:      33 % in the loop's body\n"
      "processor: 1.3 of 16 cores busy, throttled 0 %\n"
      "loader-bound: the loop waits 67 % of the time for batches, 1.0 of 1 workers are busy, 100 % "
      "of that computing, on 16 cores. .workers = 3: expected +200 %.\n");
  CHECK(ps::to_string(ps::diagnose(ps::loader_stats{}, ps::loader_stats{})) ==
        "no batch came. Let the loop run between the two snapshots.\n");
}

TEST_CASE(
    "after a replay the diagnosis reports the distance to the floor and predicts no more "
    "than that",
    "[report]") {
  const auto said_of = [](const played_loop& loop, std::chrono::nanoseconds floor) {
    auto all = loop.play().stats;
    ps::transfer_stats none = all - all;
    none.age = {};
    none.replay = all.replay = {10, 10 * floor};  // a replay before the measured window
    return ps::diagnose(none, all, loop.cores);
  };
  using std::chrono::microseconds;
  const played_loop starved{.load = 3, .copy = 0.1, .body = 1, .workers = 1, .cores = 16};
  const auto three_times = said_of(starved, microseconds{1000});
  CHECK(three_times.floor == 0.001);
  CHECK(three_times.above_floor == Approx(2.0).epsilon(0.02));
  CHECK(three_times.gain == Approx(2.0).epsilon(0.02));
  CHECK_THAT(three_times.sentence, Catch::Matchers::Contains("200 % above the floor"));
  CHECK_THAT(ps::to_string(three_times),
             Catch::Matchers::Contains(
                 "\nfloor:     1000.0 us per batch, the loop is 200 % above it\nloader-bound"));
  CHECK(said_of(starved, microseconds{2500}).gain == Approx(0.2).epsilon(0.05));

  const played_loop fed{.load = 1, .copy = 0.1, .body = 4, .workers = 8};
  CHECK_THAT(said_of(fed, microseconds{4000}).str(),
             Catch::Matchers::Contains("0 % above the floor. Faster batches would not help"));
  const auto slowed = said_of(fed, microseconds{2000});
  CHECK(slowed.limit == bottleneck::step);
  CHECK(slowed.gain == Approx(1.0).epsilon(0.02));
  CHECK_THAT(slowed.str(), Catch::Matchers::Contains("its body takes longer than it does alone"));
  CHECK(verdict_on(fed).floor == 0);
  CHECK_THAT(ps::to_string(verdict_on(fed)), !Catch::Matchers::Contains("floor"));
}

TEST_CASE("for a loop that never waits the diagnosis reports the sufficient number of workers",
          "[report]") {
  const auto said = verdict_on({.load = 1, .copy = 0.1, .body = 4, .workers = 8});
  CHECK(said.limit == bottleneck::step);
  CHECK(said.wanted_workers == 1);
  CHECK_THAT(said.str(), Catch::Matchers::Contains(".workers = 1 would suffice"));
}

TEST_CASE("without a batch there is nothing to judge", "[report]") {
  CHECK(ps::diagnose(ps::transfer_stats{}, ps::transfer_stats{}).limit == bottleneck::nothing);
  CHECK(ps::diagnose(ps::loader_stats{}, ps::loader_stats{}).limit == bottleneck::nothing);
}

TEST_CASE("an idle device is distinguished from a step that uses all of its time", "[report]") {
  ps::transfer_stats none;
  ps::transfer_stats all;
  all.age = std::chrono::seconds{1};
  all.step = {1000, 1000, 1000, std::chrono::seconds{1}};  // the body never waits
  CHECK(ps::diagnose(none, all, 4).limit == bottleneck::step);

  using std::chrono::microseconds;
  all.device = {10, microseconds{2000}, {}, microseconds{200}, microseconds{9800}};
  auto said = ps::diagnose(none, all, 4);
  CHECK(said.limit == bottleneck::step);
  CHECK(said.device_copy == 200e-6);
  CHECK(said.device_idle == 20e-6);
  CHECK(
      to_string(said).find("device:    a copy 200.0 us, a step 980.0 us, idle before it 20.0 us") !=
      std::string::npos);

  all.device = {10, microseconds{2000}, {}, microseconds{4000}, microseconds{6000}};
  said = ps::diagnose(none, all, 4);
  CHECK(said.limit == bottleneck::launches);
  CHECK(said.sentence ==
        "launch-bound: the device has no step to run for 40 % of the time although batches are "
        "ready");

  all.device = {10, microseconds{9000}, {}, microseconds{4000}, microseconds{6000}};
  said = ps::diagnose(none, all, 4);
  CHECK(said.limit == bottleneck::copy);
  CHECK(said.sentence ==
        "copy-bound: the device has no step to run for 40 % of the time although batches are "
        "ready: a copy takes 900.0 us, a step 600.0 us");
}

TEST_CASE("a loop that waits for result slots is reported", "[report]") {
  using std::chrono::milliseconds;
  ps::transfer_stats none;
  none.results.emplace();
  ps::transfer_stats all;
  all.age = std::chrono::seconds{1};
  all.step = {1000, 1000, 1000, std::chrono::seconds{1}};       // includes 600 ms in `acquire`
  CHECK(ps::diagnose(none, all, 4).limit == bottleneck::step);  // `results` has no statistics yet

  all.results = {.workers = 1, .waited = milliseconds{600}, .consuming = milliseconds{950}};
  auto said = ps::diagnose(none, all, 4);
  CHECK(said.limit == bottleneck::results);
  CHECK(said.for_results == Approx(0.6));
  CHECK(said.sentence ==
        "results-bound: for 60 % of the time the loop waits for a slot for its results, whose "
        "consumers are busy for 95 % of the time");
  CHECK(said.remedy ==
        "Consume in more threads (.workers = 3 of the results), or do less work per batch: "
        "expected +150 %.");
  CHECK_THAT(ps::to_string(said),
             Catch::Matchers::Contains("results: waited for a slot during 60 %"));

  all.results->consuming = milliseconds{100};
  said = ps::diagnose(none, all, 4);
  CHECK(said.limit == bottleneck::results);
  CHECK_THAT(said.remedy, Catch::Matchers::StartsWith("Copy fewer bytes back"));

  // The number of consumers is sufficient, because they wait for the copies.
  all.results = {.workers = 4, .waited = milliseconds{300}, .consuming = milliseconds{2400}};
  said = ps::diagnose(none, all, 4);
  CHECK(said.limit == bottleneck::results);
  CHECK_THAT(said.sentence, Catch::Matchers::EndsWith("consumers are busy for 60 % of the time"));
  CHECK_THAT(said.remedy, Catch::Matchers::StartsWith("Copy fewer bytes back"));
  all.results = {.workers = 1, .waited = milliseconds{600}, .consuming = milliseconds{100}};

  // The longer wait is reported, which is the wait for batches here.
  all.wait_for_batch = {1000, std::chrono::seconds{2}};
  said = ps::diagnose(none, all, 4);
  CHECK(said.limit != bottleneck::results);
  CHECK(said.for_results == Approx(0.2));

  all.wait_for_batch = {};
  all.results->waited = milliseconds{20};
  CHECK(ps::diagnose(none, all, 4).limit == bottleneck::step);
}

TEST_CASE("snapshots of two loaders, or in the wrong order, are rejected", "[report]") {
  ps::loader_stats one;
  one.loader = 1;
  ps::loader_stats other;
  other.loader = 2;
  CHECK_THROWS_AS(ps::diagnose(one, other), ps::stats_mismatch);
  other.loader = 1;
  other.age = std::chrono::seconds{1};
  CHECK_THROWS_AS(ps::diagnose(other, one), ps::stats_mismatch);
}
