// SPDX-License-Identifier: BSL-1.0
// Tests the statistics of a loader and a transfer while they run. To test a wait, a test blocks the
// event that ends the wait. The test then polls until the wait is much longer than all other times,
// so it does not depend on the speed of the machine.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/observe/stats.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/report/stats_text.hpp>

#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t sample_bytes = 8 * sizeof(float) + sizeof(std::uint64_t);

auto says(const char* text) { return Catch::Matchers::Message(text); }

/// Polls `stats` until `is_seen` accepts a snapshot. Fails at a deadline that a passing test never
/// reaches.
template <class Stats, class IsSeen>
auto look_until(const Stats& stats, IsSeen is_seen) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  for (;;) {
    auto seen = stats();
    const bool is_late = std::chrono::steady_clock::now() > deadline;
    if (is_late) CHECK(is_seen(seen));
    if (is_late || is_seen(seen)) return seen;
    std::this_thread::yield();
  }
}

/// Returns true if `time` is at least ten times each of the others. Times of work before a wait
/// soon become small compared with the wait, but times of work that continues during the wait do
/// not.
template <class... Others>
bool dwarfs(const std::chrono::nanoseconds& time, const Others&... others) {
  return time >= 1ms && ((10 * others < time) && ...);
}

/// Waits for two milliseconds on the steady clock. A time that grows during the call grows by more
/// than 1 ms.
void let_time_pass() {
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < 2ms) std::this_thread::yield();
}

/// Four single-value samples whose lengths are slow to compute.
struct slow_to_open {
  using record_type = ps::record<ps::field<"values", float, ps::ragged>>;
  [[nodiscard]] static std::uint64_t size() { return 4; }
  [[nodiscard]] static ps::record_extents<record_type> extents() { return {{.longest = 1}}; }
  [[nodiscard]] static std::uint64_t length(std::uint64_t) {
    let_time_pass();
    return 1;
  }
  static void read(std::uint64_t, ps::sample<record_type> out) {
    ps::get<"values">(out).flat()[0] = 1;
  }
};

struct slow_to_order {
  [[nodiscard]] static std::uint64_t size(std::uint64_t n) { return n; }
  [[nodiscard]] static ps::detail::identity_order order(std::uint64_t, std::uint64_t) {
    let_time_pass();
    return {};
  }
};

}  // namespace

TEST_CASE("batches, samples and bytes are counted exactly", "[observe]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{4});
  const auto in_order = GENERATE(true, false);
  INFO("workers " << workers << ", in order " << in_order);
  ps::loader loader{numbered{103},
                    ps::shuffled{.seed = 1},
                    {.batch_size = 10, .workers = workers, .in_order = in_order}};
  const auto none = loader.stats();
  CHECK(none.read.samples == 0);
  CHECK(none.step.batches == 0);
  CHECK(none.workers == workers);
  CHECK(none.loader != 0);

  for (auto& batch : loader.epochs(0, 2)) static_cast<void>(batch);
  const auto all = loader.stats();
  CHECK(all.read.samples == 206);
  CHECK(all.read.bytes == 206 * sample_bytes);
  CHECK(all.read.chunks >= 22);
  CHECK(all.read.timed > 0);
  CHECK(all.read.times.count() == all.read.timed);
  CHECK(all.batches.count() == 22);
  CHECK(all.step.batches == 22);
  CHECK(all.step.samples == 206);
  CHECK(all.step.bytes == 206 * sample_bytes);
  CHECK(all.ready.looks == 1);
  CHECK(all.age > none.age);

  for (auto& batch : loader.epoch(2)) static_cast<void>(batch);
  const auto last = loader.stats() - all;
  CHECK(last.read.samples == 103);
  CHECK(last.batches.count() == 11);
  CHECK(last.step.batches == 11);
  CHECK(last.step.samples == 103);
  CHECK(last.age > 0ns);
}

TEST_CASE("only the time of maps counts as map time", "[observe]") {
  const auto stats_of = [](auto data) {
    ps::loader loader{std::move(data), ps::sequential{}, {.batch_size = 10, .workers = 1}};
    for (auto& batch : loader.epoch(0)) static_cast<void>(batch);
    return loader.stats();
  };
  const auto plain = stats_of(numbered{1000});
  CHECK(plain.read.timed_chunks.count() > 0);
  CHECK(plain.read.timed_transforms.count() == 0);
  CHECK(plain.read.transforming() == 0);
  using record = numbered::record_type;
  const auto touch = [](ps::sample<record> one) { static_cast<void>(one); };
  const auto copy = [](ps::const_sample<record> from, ps::sample<record> to) {
    std::memcpy(to.address(0), from.address(0), 1);
  };
  for (const auto& mapped : {stats_of(numbered{1000} | ps::map(touch)),
                             stats_of(numbered{1000} | ps::map<record>(copy))}) {
    CHECK(mapped.read.timed_transforms.count() > 0);
    CHECK(mapped.read.timed_transforms <= mapped.read.timed_chunks);
    CHECK(mapped.read.transforming() > 0);
    CHECK(mapped.read.transforming() <= 1);
    CHECK((mapped + mapped).read.timed_transforms == 2 * mapped.read.timed_transforms);
    CHECK((mapped - mapped).read.timed_chunks.count() == 0);
  }
}

TEST_CASE("abandoned batches count as read, but not as delivered or ready", "[observe]") {
  ps::loader loader{
      numbered{1000}, ps::sequential{}, {.batch_size = 10, .workers = 2, .prefetch = 4}};
  for (int turn = 0; turn < 65; ++turn) {
    // A worker may have started another batch before the previous range ended.
    const std::uint64_t before = loader.stats().batches.count();
    for (auto& batch : loader.epoch(0)) {
      static_cast<void>(batch);
      look_until([&] { return loader.stats(); },
                 [&](const auto& seen) { return seen.batches.count() >= before + 5; });
      break;
    }
  }
  const auto left = loader.stats();
  CHECK(left.step.batches == 65);
  CHECK(left.read.samples >= 65 * 50);
  CHECK(left.ready.looks == 2);
  CHECK(left.ready.sum <= 2 * 4);
}

TEST_CASE("a failed batch is not a step, and its failed run is not counted", "[observe]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{1});
  numbered data{30};
  data.state->bad = 12;
  ps::loader loader{
      data, ps::sequential{}, {.batch_size = 10, .workers = workers, .tuning = {.chunk = 10}}};
  const auto consume = [&] {
    for (auto& batch : loader.epoch(0)) static_cast<void>(batch);
  };
  CHECK_THROWS_AS(consume(), bad_sample);
  CHECK(loader.stats().step.batches == 1);
  CHECK(loader.stats().read.samples % 10 == 0);
  CHECK(loader.stats().read.samples <= 20);
}

TEST_CASE("a consumer whose batch is being read waits for ready, and the reader waits for nothing",
          "[observe]") {
  const numbered data{100};
  data.state->gate.store(1);
  ps::loader loader{data, ps::sequential{}, {.batch_size = 10, .workers = 1}};
  std::thread looker{[&] {
    data.state->arrived.wait([](std::uint32_t count) { return count == 1; });
    const auto before =
        look_until([&] { return loader.stats(); },
                   [](const ps::loader_stats& seen) { return seen.wait_for_ready.count == 1; });
    const auto during = look_until(
        [&] { return loader.stats() - before; },
        [](const ps::loader_stats& seen) {
          return dwarfs(seen.wait_for_ready.time, seen.wait_for_slot.time,
                        seen.wait_for_demand.time, seen.wait_for_opener.time, seen.step.busy);
        });
    CHECK(during.wait_for_ready.count == 0);  // the wait in progress is not counted yet
    data.state->gate.store(0);
  }};
  for (auto& batch : loader.epoch(0)) {
    static_cast<void>(batch);
    break;
  }
  looker.join();
}

TEST_CASE("workers without a slot wait for one, and the others for the opener", "[observe]") {
  ps::loader loader{
      numbered{1000}, ps::sequential{}, {.batch_size = 10, .workers = 2, .prefetch = 2}};
  auto range = loader.epoch(0);
  auto it = range.begin();
  REQUIRE(it != range.end());
  // All slots are full or leased. One worker waits for the next slot, and the other waits for that
  // worker.
  const auto before = look_until([&] { return loader.stats(); },
                                 [](const ps::loader_stats& seen) {
                                   return seen.batches.count() == 3 &&
                                          seen.wait_for_slot.count > 0 &&
                                          seen.wait_for_opener.count > 0;
                                 });
  const auto waiting = look_until(
      [&] { return loader.stats() - before; },
      [](const ps::loader_stats& seen) {
        return seen.wait_for_opener.time >= 1ms &&
               dwarfs(seen.wait_for_slot.time, seen.wait_for_demand.time, seen.wait_for_ready.time,
                      seen.read.busy);  // a waiting thread is not busy
      });
  CHECK(waiting.read.samples == 0);
  CHECK(waiting.step.busy >= 1ms);  // the consumer's body is running
}

TEST_CASE("workers wait for demand while no range is live", "[observe]") {
  ps::loader loader{numbered{20}, ps::sequential{}, {.batch_size = 10, .workers = 1}};
  const auto idle = [](const ps::loader_stats& seen) { return seen.wait_for_demand.time >= 1ms; };
  const auto before = look_until([&] { return loader.stats(); }, idle);
  CHECK(before.wait_for_demand.count == 1);
  CHECK(before.step.busy == 0ns);
  for (auto& batch : loader.epoch(0)) static_cast<void>(batch);
  const auto after = loader.stats();
  look_until([&] { return loader.stats() - after; },
             [](const ps::loader_stats& seen) {  // no loop is running
               return dwarfs(seen.wait_for_demand.time, seen.wait_for_slot.time, seen.step.busy);
             });
}

TEST_CASE("a worker whose slot is still being copied waits for the copy", "[observe]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::loader loader{
      numbered{1000}, ps::sequential{}, device, {.batch_size = 10, .workers = 1, .prefetch = 1}};
  loader.start({0, 0}, 1);
  std::vector<std::byte> to(4096);
  device.hold_copies();
  for (int i = 0; i < 2; ++i) {
    auto batch = loader.next();
    device.copy_async(to.data(), std::as_const(batch).data(), 400, stream);
    batch.release_after(stream);
  }
  const auto before =
      look_until([&] { return loader.stats(); },
                 [](const ps::loader_stats& seen) { return seen.wait_for_copy.count == 1; });
  look_until([&] { return loader.stats() - before; },
             [](const ps::loader_stats& seen) {
               return dwarfs(seen.wait_for_copy.time, seen.wait_for_slot.time,
                             seen.wait_for_demand.time);
             });
  device.open_copies();
  device.synchronize(stream);
  loader.stop();
}

TEST_CASE("a consumer that reads itself waits for the end of a lease", "[observe]") {
  ps::loader loader{numbered{100},
                    ps::sequential{},
                    {.batch_size = 10,
                     .workers = 0,
                     .prefetch = 1,
                     .on_slots_exhausted = ps::exhausted_action::wait}};
  loader.start({0, 0}, 1);
  auto first = loader.next();
  auto second = loader.next();
  std::thread holder{[&, held = std::move(first)]() mutable {
    const auto before =
        look_until([&] { return loader.stats(); },
                   [](const ps::loader_stats& seen) { return seen.wait_for_lease.count == 1; });
    look_until([&] { return loader.stats() - before; },
               [](const ps::loader_stats& seen) { return seen.wait_for_lease.time >= 1ms; });
    held = {};
  }};
  CHECK(loader.next());
  holder.join();
  second = {};
  loader.stop();
}

TEST_CASE("without workers, orders and lengths do not count as the loop's body", "[observe]") {
  ps::loader loader{
      slow_to_open{}, slow_to_order{}, {.batch_size = 4, .workers = 0, .prefetch = 1}};
  for (auto& batch : loader.epochs(0, 2)) static_cast<void>(batch);
  const auto seen = loader.stats();
  CHECK(seen.step.batches == 2);
  CHECK(seen.read.busy >= 18ms);  // two orders and eight lengths, measured with two clocks
  CHECK(seen.step.busy < seen.read.busy);
}

TEST_CASE("reads that hang are named among the slowest samples", "[observe]") {
  struct slow_one {
    using record_type = numbered::record_type;
    numbered inner{40};
    [[nodiscard]] std::uint64_t size() const { return inner.size(); }
    void read(std::uint64_t index, ps::sample<record_type> out) const {
      if (index == 7) let_time_pass();
      inner.read(index, out);
    }
  };
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  ps::loader loader{slow_one{}, ps::shuffled{.seed = 1}, {.batch_size = 40, .workers = workers}};
  for (auto& batch : loader.epoch(0)) static_cast<void>(batch);
  const auto all = loader.stats();
  const auto named = [&](std::uint64_t index) {
    for (const auto& one : all.read.slowest)
      if (one.index == index && one.time >= 1ms) return true;
    return false;
  };
  CHECK(named(7));
  CHECK(all.read.slowest.front().time == all.read.times.longest());
  CHECK(all.read.busy >= 1ms);
}

TEST_CASE("a transfer's copies and waits are counted, with those of its loader", "[observe]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{4});
  ps::cpu_device device;
  auto stream = device.make_stream();
  ps::loader loader{
      numbered{103}, ps::shuffled{.seed = 1}, device, {.batch_size = 10, .workers = workers}};
  ps::transfer feed{loader, stream};
  for (auto& batch : feed.epochs(0, 2)) static_cast<void>(batch);
  const auto all = feed.stats();
  CHECK(all.copies == 22);
  CHECK(all.samples == 206);
  CHECK(all.bytes == 206 * sample_bytes);
  CHECK(all.transforms == 0);
  CHECK(all.step.batches == 22);
  CHECK(all.step.bytes == 206 * sample_bytes);
  CHECK(all.ahead.looks == 22);
  CHECK(all.wait_for_copy.count == 0);  // the stream waits, not the consumer
  REQUIRE(all.loader.has_value());
  CHECK(all.loader->step.batches == 22);
  CHECK(all.loader->read.samples == 206);

  for (auto& batch : feed.epoch(2)) static_cast<void>(batch);
  const auto last = feed.stats() - all;
  CHECK(last.copies == 11);
  CHECK(last.step.samples == 103);
  CHECK(last.loader->step.batches == 11);
}

TEST_CASE("time without a loop is not a step of a transfer", "[observe]") {
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, {.batch_size = 10, .workers = 1}}};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  const auto before = feed.stats();
  look_until([&] { return feed.stats() - before; },
             [](const ps::transfer_stats& seen) { return dwarfs(seen.age, seen.step.busy); });
}

TEST_CASE("transforms are counted, and the bytes on both sides of them", "[observe]") {
  using wide = ps::record<ps::field<"x", double, 4>>;
  ps::loader loader{numbered{30}, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  ps::transfer feed{loader, ps::cpu_device{},
                    ps::on_stream<wide>([](ps::const_batch_view<numbered::record_type>,
                                           ps::batch_view<wide>, ps::cpu_stream_ref) {})};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  CHECK(feed.stats().transforms == 3);
  CHECK(feed.stats().bytes == 30 * sample_bytes);
  CHECK(feed.stats().step.bytes == 30 * 4 * sizeof(double));
}

TEST_CASE("a consumer whose body is the step waits for the copy", "[observe]") {
  const gated_device device;
  ps::loader loader{numbered{30}, ps::sequential{}, device, {.batch_size = 10, .workers = 0}};
  ps::transfer feed{loader};
  device.hold_copies();
  std::thread opener{[&] {
    const auto before =
        look_until([&] { return feed.stats(); },
                   [](const ps::transfer_stats& seen) { return seen.wait_for_copy.count == 1; });
    look_until([&] { return feed.stats() - before; },
               [](const ps::transfer_stats& seen) {
                 return dwarfs(seen.wait_for_copy.time, seen.wait_for_batch.time, seen.step.busy);
               });
    device.open_copies();
  }};
  for (auto& batch : feed.epoch(0)) {
    static_cast<void>(batch);
    break;
  }
  opener.join();
}

TEST_CASE("a consumer whose device slots are leased waits for one", "[observe]") {
  ps::cpu_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{100}, ps::sequential{}, device, {.batch_size = 10, .workers = 1}};
  ps::transfer feed{loader, stream, {.depth = 1, .on_slots_exhausted = ps::exhausted_action::wait}};
  auto range = feed.epoch(0);
  auto it = range.begin();
  std::thread holder{[&, held = std::move(*it)]() mutable {
    const auto before =
        look_until([&] { return feed.stats(); },
                   [](const ps::transfer_stats& seen) { return seen.wait_for_slot.count == 1; });
    look_until([&] { return feed.stats() - before; },
               [](const ps::transfer_stats& seen) { return seen.wait_for_slot.time >= 1ms; });
    held = {};
  }};
  ++it;
  holder.join();
  CHECK(feed.stats().step.batches == 2);
}

TEST_CASE("snapshots are taken from another thread while four workers run", "[observe]") {
  ps::cpu_device device;
  auto stream = device.make_stream();
  ps::loader loader{numbered{1000},
                    ps::shuffled{.seed = 1},
                    device,
                    {.batch_size = 16, .workers = 4, .prefetch = 3, .tuning = {.chunk = 2}}};
  ps::transfer feed{loader, stream};
  std::atomic<bool> is_over{false};
  std::thread looker{[&] {
    auto before = feed.stats();
    std::uint64_t bad = 0;
    while (!is_over) {
      const auto now = feed.stats();
      if (now.step.batches < before.step.batches || now.copies < before.copies ||
          now.loader->read.samples < before.loader->read.samples) {
        ++bad;
      }
      static_cast<void>(to_text(now - before));
      before = now;
    }
    CHECK(bad == 0);
  }};
  for (auto& batch : feed.epochs(0, 20)) static_cast<void>(batch);
  is_over = true;
  looker.join();
  CHECK(feed.stats().loader->read.samples == 20'000);
}

TEST_CASE("workers report their processor usage", "[observe]") {
  struct busy {
    using record_type = numbered::record_type;
    [[nodiscard]] std::uint64_t size() const { return 1'000'000; }
    void read(std::uint64_t index, ps::sample<record_type> out) const {
      ps::get<"label">(out) = index;
    }
  };
  ps::loader loader{busy{}, ps::sequential{}, {.batch_size = 10, .workers = 2}};
  for (auto& batch : loader.epoch(0)) {
    static_cast<void>(batch);
    if (loader.stats().processor > 0ns) break;
  }
  CHECK(loader.stats().processor > 0ns);

  ps::loader inline_loader{busy{}, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  for (auto& batch : inline_loader.epoch(0)) {
    if (batch.number() == 1000) break;
  }
  CHECK(inline_loader.stats().processor == 0ns);  // the reading thread belongs to the program
}

TEST_CASE("statistics of different loaders can't be subtracted, nor later ones from earlier ones",
          "[observe]") {
  ps::loader one{numbered{30}, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  ps::loader other{numbered{30}, ps::sequential{}, {.batch_size = 10, .workers = 0}};
  const auto early = one.stats();
  const auto late = one.stats();
  CHECK_THROWS_AS(other.stats() - early, ps::stats_mismatch);
  CHECK_THROWS_MATCHES(
      early - late, ps::stats_mismatch,
      says("loader_stats: the subtracted snapshot is the later one: write later - earlier"));
  CHECK((late - early).read.samples == 0);
  CHECK((late - late).age == 0ns);

  ps::transfer feed{one};
  ps::transfer other_feed{other};
  const auto of_feed = feed.stats();
  CHECK_THROWS_MATCHES(other_feed.stats() - of_feed, ps::stats_mismatch,
                       says("transfer_stats: the two snapshots are from different objects: "
                            "subtract an earlier snapshot of the same object"));
  CHECK_THROWS_AS(of_feed - feed.stats(), ps::stats_mismatch);
}

TEST_CASE("the slowest samples of a difference were read between the snapshots", "[observe]") {
  ps::loader_stats before;
  ps::loader_stats after;
  before.read.slowest[0] = {5, 1000us};
  before.read.slowest[1] = {6, 500us};
  after.read.slowest[0] = {7, 2000us};
  after.read.slowest[1] = {5, 1001us};  // the same read after a better calibration of the clock
  after.read.slowest[2] = {6, 900us};   // a second, slower read of the sample
  const auto between = (after - before).read.slowest;
  CHECK(between[0] == ps::slow_sample{7, 2000us});
  CHECK(between[1] == ps::slow_sample{6, 900us});
  CHECK(between[2] == ps::slow_sample{});
}

TEST_CASE("statistics add up over loaders, and sums subtract", "[observe]") {
  ps::loader one{numbered{30}, ps::sequential{}, {.batch_size = 10, .workers = 1}};
  ps::loader other{numbered{50}, ps::sequential{}, {.batch_size = 10, .workers = 2}};
  const auto before = one.stats() + other.stats();
  for (auto& batch : one.epoch(0)) static_cast<void>(batch);
  for (auto& batch : other.epoch(0)) static_cast<void>(batch);
  const auto of_one = one.stats();
  const auto of_other = other.stats();
  const auto both = of_other + of_one;
  CHECK(both.workers == 3);
  CHECK(both.read.samples == 80);
  CHECK(both.batches.count() == 8);
  CHECK(both.step.batches == 8);
  CHECK(both.read.slowest.front().time ==
        std::max(of_one.read.slowest.front().time, of_other.read.slowest.front().time));
  CHECK((both - before).read.samples == 80);
  ps::loader_stats reported = of_one;
  reported.ahead = {100, 7, 70, 30, 5, 2, 400};
  ps::loader_stats earlier = reported;
  earlier.ahead = {100, 3, 20, 25, 1, 1, 400};
  const auto more = (reported - earlier).ahead;
  CHECK(std::array{more.samples, more.bytes, more.late, more.failed} ==
        std::array<std::uint64_t, 4>{4, 50, 4, 1});
  // Unlike the other values, these are current values and not differences.
  CHECK((more.max_bytes == 100 && more.bytes_now == 30 && more.source_bytes == 400));
  const auto twice = (reported + reported).ahead;
  CHECK(std::array{twice.max_bytes, twice.samples, twice.bytes, twice.bytes_now, twice.late,
                   twice.failed} == std::array<std::uint64_t, 6>{200, 14, 140, 60, 10, 4});
  CHECK(twice.source_bytes == 400);
  CHECK_THROWS_AS(both - one.stats(), ps::stats_mismatch);

  auto by_another_clock = one.stats();
  by_another_clock.clock = by_another_clock.clock == ps::stats_clock::steady
                               ? ps::stats_clock::tsc
                               : ps::stats_clock::steady;
  CHECK_THROWS_MATCHES(one.stats() + by_another_clock, ps::stats_mismatch,
                       says("loader_stats: two snapshots were measured by different clocks"));

  ps::transfer feed{one};
  ps::transfer other_feed{other};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  for (auto& batch : other_feed.epoch(0)) static_cast<void>(batch);
  const auto feeds = feed.stats() + other_feed.stats();
  CHECK(feeds.copies == 8);
  CHECK(feeds.loader->read.samples == 160);
}
