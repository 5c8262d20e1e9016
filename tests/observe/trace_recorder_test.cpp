// SPDX-License-Identifier: BSL-1.0
// Tests the events that a trace records for each batch of a loop.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"
#include "support/rejection.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

using stage = ps::trace_stage;

/// The events of one batch on all tracks.
struct followed {
  std::map<stage, int> times;              // number of events per stage
  std::map<stage, std::uint64_t> samples;  // number of samples per stage
  std::vector<std::string> leased_by;      // tracks that record the leases of the batch
};

using position = std::pair<std::uint64_t, std::uint64_t>;  // an epoch and a batch

std::map<position, followed> by_batch(const ps::trace_snapshot& trace) {
  std::map<position, followed> all;
  for (const ps::trace_track& track : trace.tracks) {
    for (const ps::trace_event& event : track.events) {
      if (!event.batch) continue;
      followed& one = all[{event.batch->epoch, event.batch->batch}];
      ++one.times[event.stage];
      one.samples[event.stage] += event.samples;
      if (event.stage == stage::lease) one.leased_by.push_back(track.name);
    }
  }
  return all;
}

const ps::trace_track& track_of(const ps::trace_snapshot& trace, const std::string& name) {
  const auto found = std::find_if(trace.tracks.begin(), trace.tracks.end(),
                                  [&](const auto& track) { return track.name == name; });
  INFO("track " << name);
  REQUIRE(found != trace.tracks.end());
  return *found;
}

/// Returns the batches for which a track has an event of stage `which`, in recording order.
std::vector<std::uint64_t> batches_of(const ps::trace_track& track, stage which) {
  std::vector<std::uint64_t> all;
  for (const ps::trace_event& event : track.events) {
    if (event.stage == which && event.batch) all.push_back(event.batch->batch);
  }
  return all;
}

/// Waits until `is_seen()` returns true. Fails at a deadline that a passing test never reaches.
template <class IsSeen>
void look_until(IsSeen is_seen) {
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!is_seen() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  CHECK(is_seen());
}

/// Atomics that call `then` just before the `due`-th load from now. If `due` is 0, they never call
/// it.
struct interrupted_atomics {
  inline static std::size_t due = 0;
  inline static std::function<void()> then;

  template <class T>
  class atomic {
   public:
    atomic(T value = {}) : value_(value) {}  // NOLINT: as the standard's
    [[nodiscard]] T load(std::memory_order) const {
      if (due != 0 && --due == 0) then();
      return value_;
    }
    void store(T value, std::memory_order) { value_ = value; }

   private:
    T value_;
  };
};

struct numbered_event {
  std::uint64_t number = ~std::uint64_t{0};
  std::uint64_t value = 0;
};

const auto unchanged = ps::on_stream<numbered::record_type>(
    [](ps::const_batch_view<numbered::record_type>, ps::batch_view<numbered::record_type>,
       ps::cpu_stream_ref) {});

}  // namespace

TEST_CASE("every batch can be followed from its reads to its release",
          "[observe][promise:honest-19]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{3});
  INFO("workers " << workers);
  ps::trace_recorder recorder;
  ps::loader loader{
      numbered{103},
      ps::shuffled{.seed = 1},
      {.batch_size = 10, .workers = workers, .instrumentation = {.trace = &recorder}}};
  ps::transfer feed{
      loader, ps::cpu_device{}, unchanged, {.depth = 2, .instrumentation = {.trace = &recorder}}};
  for (auto& batch : feed.epochs(0, 2)) static_cast<void>(batch);

  const auto trace = recorder.snapshot();
  auto all = by_batch(trace);
  REQUIRE(all.size() == 22);
  for (auto& [batch, seen] : all) {
    INFO("epoch " << batch.first << ", batch " << batch.second);
    const std::uint64_t samples = batch.second == 10 ? 3 : 10;
    CHECK(seen.samples[stage::read] == samples);
    for (const stage once : {stage::copy, stage::transform, stage::step}) {
      CHECK(seen.times[once] == 1);
      CHECK(seen.samples[once] == samples);
    }
    REQUIRE(seen.leased_by.size() == 2);
    CHECK(seen.leased_by[0].rfind("host slot ", 0) == 0);
    CHECK(seen.leased_by[1].rfind("device slot ", 0) == 0);
  }
  CHECK(trace.tracks.size() == workers + 2 + loader.footprint().slot_count + 2);
  for (const ps::trace_track& track : trace.tracks) {
    CHECK(track.flow == 1);
    CHECK(track.lost == 0);
    for (const ps::trace_event& event : track.events) CHECK(event.begin <= event.end);
  }
}

TEST_CASE("a loop over a loader has its steps and its leases recorded", "[observe]") {
  ps::trace_recorder recorder;
  ps::loader loader{numbered{30},
                    ps::sequential{},
                    {.batch_size = 10, .workers = 1, .instrumentation = {.trace = &recorder}}};
  for (auto& batch : loader.epoch(0)) static_cast<void>(batch);
  auto all = by_batch(recorder.snapshot());
  REQUIRE(all.size() == 3);
  for (auto& [batch, seen] : all) {
    CHECK(seen.times[stage::step] == 1);
    CHECK(seen.times[stage::copy] == 0);
    CHECK(seen.leased_by.size() == 1);
  }
}

TEST_CASE("without a recorder no event is recorded", "[observe]") {
  ps::trace_recorder recorder;
  ps::loader loader{numbered{30}, ps::sequential{}, {.batch_size = 10}};
  ps::transfer feed{loader};
  for (auto& batch : feed.epoch(0)) static_cast<void>(batch);
  CHECK(recorder.snapshot().tracks.empty());
}

TEST_CASE("a lease that another thread ends is recorded when it ends", "[observe]") {
  ps::trace_recorder recorder;
  ps::loader loader{
      numbered{20},
      ps::sequential{},
      {.batch_size = 10, .workers = 1, .prefetch = 3, .instrumentation = {.trace = &recorder}}};
  std::vector<decltype(loader)::batch_type> kept;
  for (auto& batch : loader.epoch(0)) kept.push_back(std::move(batch));
  const auto leases = [&] {
    int all = 0;
    for (auto& [batch, seen] : by_batch(recorder.snapshot())) all += seen.times[stage::lease];
    return all;
  };
  CHECK(leases() == 0);
  std::thread{[&] { kept.pop_back(); }}.join();
  CHECK(leases() == 1);
  kept.clear();
  CHECK(leases() == 2);
}

TEST_CASE("loader, feed and leases may outlive their recorder", "[observe]") {
  std::optional<ps::trace_recorder> recorder{std::in_place};
  ps::loader loader{numbered{30},
                    ps::sequential{},
                    {.batch_size = 10, .workers = 2, .instrumentation = {.trace = &*recorder}}};
  ps::transfer feed{loader, {.instrumentation = {.trace = &*recorder}}};
  auto range = feed.epochs(0, 2);
  auto batch = range.begin();
  recorder.reset();
  std::uint64_t samples = 0;
  for (; batch != range.end(); ++batch) samples += batch->size();
  CHECK(samples == 60);
}

TEST_CASE("waits are recorded with the batch that they were for", "[observe][promise:honest-19]") {
  ps::trace_recorder recorder;
  const numbered data{40};
  data.state->gate.store(1);
  ps::loader loader{
      data,
      ps::sequential{},
      {.batch_size = 10, .workers = 1, .prefetch = 1, .instrumentation = {.trace = &recorder}}};
  auto range = loader.epoch(0);
  std::thread opens{[&] {
    look_until([&] { return loader.stats().wait_for_ready.count == 1; });
    data.state->gate.store(0);
  }};
  auto batch = range.begin();
  opens.join();
  look_until([&] { return loader.stats().wait_for_slot.count == 1; });  // the wait for batch 2
  ++batch;
  look_until([&] { return loader.stats().read.samples == 30; });
  const auto trace = recorder.snapshot();
  const auto for_batch = batches_of(track_of(trace, "penstock consumer"), stage::wait_for_batch);
  const auto for_slot = batches_of(track_of(trace, "penstock worker 0"), stage::wait_for_slot);
  REQUIRE_FALSE(for_batch.empty());
  CHECK(for_batch.front() == 0);
  REQUIRE_FALSE(for_slot.empty());
  CHECK(for_slot.front() == 2);
}

TEST_CASE("a wait that no batch follows is recorded without a batch", "[observe]") {
  using ps::detail::trace_writer;
  const ps::detail::tick_clock clock;
  trace_writer writer{"one", 1, 32, clock};
  std::vector<ps::detail::traced_event> events;
  const ps::batch_info third{.epoch = 1, .batch = 3, .size = 10};
  writer.record_wait(stage::wait_for_batch, 10, 20);
  CHECK(writer.ring().copy_to(events) == 0);
  CHECK(events.empty());
  writer.leave();
  writer.record_wait(stage::wait_for_opener, 30, 35);
  writer.record_wait(stage::wait_for_opener, 36, 40);  // continues the same wait after a check
  writer.record_wait(stage::wait_for_slot, 50, 60);
  writer.work_on(third);
  writer.ring().copy_to(events);
  REQUIRE(events.size() == 3);
  CHECK(events[0].batch == ps::detail::traced_event::none);
  CHECK(events[1].begin == 30);
  CHECK(events[1].end == 40);
  CHECK(events[1].batch == 3);
  CHECK(events[2].begin == 50);
  CHECK(events[2].epoch == 1);
  // Further waits are recorded without a batch if there are more different waits than the buffer
  // can hold.
  for (std::uint64_t i = 0; i < 6; ++i) {
    writer.record_wait(stage::wait_for_demand, 100 + i, 101 + i);
    writer.record_wait(stage::wait_for_slot, 100 + i, 101 + i);
  }
  writer.work_on(third);
  writer.ring().copy_to(events);
  REQUIRE(events.size() == 3 + 12);
  // A worker records its waits separately from its sleep while inactive.
  writer.record_wait(stage::wait_for_opener, 200, 210);
  writer.record_wait(stage::wait_while_inactive, 210, 300);
  writer.record_wait(stage::wait_for_opener, 300, 310);
  writer.work_on(third);
  writer.ring().copy_to(events);
  REQUIRE(events.size() == 3 + 12 + 3);
  CHECK(events[15].end == 210);
  CHECK(events[16].end == 300);
  CHECK(events[17].begin == 300);
}

TEST_CASE("the sleep of an inactive worker is recorded, and earlier events are visible meanwhile",
          "[observe]") {
  const ps::detail::tick_clock clock;
  const auto writer = std::make_shared<ps::detail::trace_writer>("one", 1, 16, clock);
  ps::detail::worker_meters seen{clock, 1, false};
  seen.trace_to(writer);
  std::vector<ps::detail::traced_event> events;
  { const auto waits = seen.for_opener(); }
  {
    const auto sleeps = seen.while_inactive();
    writer->ring().copy_to(events);
    REQUIRE(events.size() == 1);
    CHECK(events[0].batch == ps::detail::traced_event::none);
  }
  { const auto waits = seen.for_opener(); }
  writer->work_on({.epoch = 0, .batch = 7, .size = 1});
  writer->ring().copy_to(events);
  REQUIRE(events.size() == 3);
  CHECK(events[1].stage == static_cast<std::uint64_t>(stage::wait_while_inactive));
  CHECK(events[2].stage == static_cast<std::uint64_t>(stage::wait_for_opener));
}

TEST_CASE("a ring keeps the newest events and reports the number of lost ones",
          "[observe][promise:honest-19]") {
  ps::trace_recorder recorder{{.capacity = 16}};
  ps::loader loader{numbered{1000},
                    ps::sequential{},
                    {.batch_size = 10, .workers = 1, .instrumentation = {.trace = &recorder}}};
  for (auto& batch : loader.epoch(0)) static_cast<void>(batch);
  const auto trace = recorder.snapshot();
  const auto& consumer = track_of(trace, "penstock consumer");
  CHECK(consumer.events.size() == 16);
  CHECK(consumer.lost >= 100 - 16);
  const auto steps = batches_of(consumer, stage::step);
  REQUIRE_FALSE(steps.empty());
  for (std::size_t i = 0; i < steps.size(); ++i) CHECK(steps[i] == 100 - steps.size() + i);
  const auto reads = batches_of(track_of(trace, "penstock worker 0"), stage::read);
  REQUIRE_FALSE(reads.empty());
  CHECK(reads.back() == 99);
}

TEST_CASE("events overwritten during a copy leave no gap", "[observe]") {
  using atomics = interrupted_atomics;
  std::vector<numbered_event> copy;
  std::set<std::uint64_t> firsts;
  for (std::size_t load = 1; load <= 24; ++load) {
    INFO("before load " << load);
    ps::detail::trace_ring<numbered_event, atomics> ring{4};
    std::uint64_t value = 100;
    const auto add_two = [&] {
      for (int i = 0; i < 2; ++i) ring.add({0, value++});
    };
    add_two();
    add_two();
    atomics::then = add_two;
    atomics::due = load;
    const std::uint64_t first = ring.copy_to(copy);
    atomics::due = 0;
    firsts.insert(first);
    for (std::size_t i = 0; i < copy.size(); ++i) {
      CHECK(copy[i].number == first + i);
      CHECK(copy[i].value == 100 + first + i);
    }
    CHECK(copy.size() == (load == 1 ? 6 : 4) - first);
  }
  // Both halves of a pair were overwritten, or neither.
  CHECK(firsts == std::set<std::uint64_t>{0, 2});
}

TEST_CASE("every stage has its name in words", "[observe]") {
  const std::vector<std::pair<stage, std::string_view>> names{
      {stage::read, "read"},
      {stage::wait_for_demand, "wait for demand"},
      {stage::wait_for_slot, "wait for slot"},
      {stage::wait_for_copy, "wait for copy"},
      {stage::wait_for_opener, "wait for opener"},
      {stage::wait_while_inactive, "inactive"},
      {stage::wait_for_batch, "wait for batch"},
      {stage::wait_for_lease, "wait for lease"},
      {stage::copy, "copy"},
      {stage::transform, "transform"},
      {stage::step, "step"},
      {stage::lease, "lease"},
      {stage::setting, "setting"},
      {stage::depth, "depth"},
      {stage::consume, "consume"}};
  for (const auto& [one, name] : names) CHECK(name_of(one) == name);
  CHECK(name_of(static_cast<stage>(names.size())).empty());
}

TEST_CASE("snapshots are taken while four workers run", "[observe][promise:honest-19]") {
  ps::trace_recorder recorder{{.capacity = 16}};
  ps::loader loader{numbered{4000},
                    ps::shuffled{.seed = 1},
                    {.batch_size = 10, .workers = 4, .instrumentation = {.trace = &recorder}}};
  ps::transfer feed{loader, {.instrumentation = {.trace = &recorder}}};
  std::atomic<bool> is_over{false};
  std::uint64_t wrong = 0;
  std::thread looks{[&] {
    while (!is_over.load()) {
      for (const auto& track : recorder.snapshot().tracks) {
        if (track.events.size() > 400) ++wrong;
        for (const auto& event : track.events) {
          const bool is_sound = event.begin <= event.end && event.samples <= 10 &&
                                !name_of(event.stage).empty() &&
                                (!event.batch || event.batch->batch < 400);
          if (!is_sound) ++wrong;
        }
        const auto steps = batches_of(track, stage::step);
        for (std::size_t i = 1; i < steps.size(); ++i) {
          if (steps[i] != (steps[i - 1] + 1) % 400) ++wrong;
        }
      }
    }
  }};
  std::uint64_t samples = 0;
  for (auto& batch : feed.epochs(0, 2)) samples += batch.size();
  is_over = true;
  looks.join();
  CHECK(samples == 8000);
  CHECK(wrong == 0);
}

TEST_CASE("two loaders of one recorder have separate tracks and batches", "[observe]") {
  ps::trace_recorder recorder;
  const ps::loader_options options{
      .batch_size = 10, .workers = 1, .instrumentation = {.trace = &recorder}};
  ps::loader train{numbered{30}, ps::sequential{}, options};
  ps::loader test{numbered{30}, ps::sequential{}, options};
  ps::transfer feed{test, {.depth = 1, .instrumentation = {.trace = &recorder}}};
  ps::loader other{numbered{30}, ps::sequential{}, {.batch_size = 10}};
  const ps::transfer alone{other, {.depth = 1, .instrumentation = {.trace = &recorder}}};
  const auto trace = recorder.snapshot();
  CHECK(track_of(trace, "penstock worker 0").flow == 1);
  CHECK(track_of(trace, "penstock worker 0 (2)").flow == 2);
  CHECK(track_of(trace, "penstock transfer (2)").flow == 2);
  CHECK(track_of(trace, "device slot 0 (2)").flow == 2);
  CHECK(track_of(trace, "penstock transfer (3)").flow == 3);
}

TEST_CASE("a recorder rejects a capacity that is not a power of two in its limits", "[observe]") {
  for (const std::size_t capacity : {0U, 8U, 100U, 1U << 25U}) {
    CAPTURE(capacity);
    CHECK(test::rejection_of([&] { ps::trace_recorder{{.capacity = capacity}}; }).option ==
          "capacity");
  }
  CHECK(ps::trace_recorder{{.capacity = 16}}.capacity() == 16);
}

TEST_CASE("times of a trace are those of the steady clock", "[observe]") {
  const auto before = std::chrono::steady_clock::now().time_since_epoch();
  ps::trace_recorder recorder;
  ps::loader loader{
      numbered{30}, ps::sequential{}, {.batch_size = 10, .instrumentation = {.trace = &recorder}}};
  look_until([&] { return std::chrono::steady_clock::now().time_since_epoch() - before > 5ms; });
  for (auto& batch : loader.epoch(0)) static_cast<void>(batch);
  const auto trace = recorder.snapshot();
  CHECK(trace.taken >= before);
  CHECK(trace.taken <= std::chrono::steady_clock::now().time_since_epoch());
  if (trace.clock_has_stepped) return;
  // A thread may be preempted between reading the two clocks. The next snapshot then compares the
  // clocks again.
  look_until([&] {
    const auto seen = recorder.snapshot();
    return std::all_of(seen.tracks.begin(), seen.tracks.end(), [&](const auto& track) {
      return std::all_of(track.events.begin(), track.events.end(), [&](const auto& event) {
        return event.begin >= before && event.end <= seen.taken;
      });
    });
  });
}
