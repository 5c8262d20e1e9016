// SPDX-License-Identifier: BSL-1.0
// A loader that tunes itself during a loop delivers the same batches and stays within its limits.
// Unneeded workers sleep and disturb no other thread.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <penstock/load/tuning_history.hpp>
#include <penstock/observe/trace_recorder.hpp>
#include <penstock/penstock.hpp>

#include "support/catch.hpp"
#include "support/in_child.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

using drawn_record =
    ps::record<ps::field<"label", std::uint64_t>, ps::field<"bits", std::uint32_t, 3>>;

/// A dataset of random bits. Reads take varying times and count the threads that are reading.
/// Copies share the counters.
struct counted {
  using record_type = drawn_record;

  struct shared {
    std::atomic<std::size_t> readers{0};
    std::atomic<std::size_t> max_readers{0};
  };
  std::uint64_t turns = 0;
  std::shared_ptr<shared> state = std::make_shared<shared>();

  [[nodiscard]] std::uint64_t size() const { return 2000; }
  void read(std::uint64_t index, ps::sample<record_type> out, ps::sample_generator& rng) const {
    const std::size_t now = ++state->readers;
    for (std::size_t max = state->max_readers;
         max < now && !state->max_readers.compare_exchange_weak(max, now);) {
    }
    std::atomic<std::uint64_t> spent = 0;
    for (std::uint64_t i = 0; i < turns * (index % 3); ++i) spent.fetch_add(1);
    ps::get<"label">(out) = index;
    for (std::uint32_t& bits : ps::get<"bits">(out).flat()) bits = rng();
    --state->readers;
  }
};

template <class Source>
std::vector<std::uint64_t> all_of(Source& source, std::uint64_t epochs) {
  std::vector<std::uint64_t> all;
  for (auto& batch : source.epochs(0, epochs)) {
    for (const std::uint64_t label : ps::get<"label">(batch).flat()) all.push_back(label);
    for (const std::uint32_t bits : ps::get<"bits">(batch).flat()) all.push_back(bits);
  }
  return all;
}

const ps::loader_options tuned{.batch_size = 10,
                               .workers = ps::automatic,
                               .prefetch = ps::automatic,
                               .seed = 5,
                               .tuning = {.max_workers = 4}};

}  // namespace

TEST_CASE("automatic workers and prefetch give the same bits as fixed settings",
          "[flow][promise:bounded-4]") {
  const std::uint64_t turns = GENERATE(0U, 40U);
  INFO("turns " << turns);
  const counted data{turns};
  ps::loader fixed{data, ps::shuffled{.seed = 3}, {.batch_size = 10, .workers = 0, .seed = 5}};
  const auto expected = all_of(fixed, 2);
  data.state->max_readers = 0;

  ps::loader loader{data, ps::shuffled{.seed = 3}, tuned};
  CHECK(all_of(loader, 2) == expected);
  ps::transfer feed{loader};
  CHECK(all_of(feed, 2) == expected);
  CHECK(data.state->max_readers <= 4);

  ps::loader ahead{data,
                   ps::shuffled{.seed = 3},
                   {.batch_size = 10, .workers = 2, .prefetch = ps::automatic, .seed = 5}};
  CHECK(all_of(ahead, 2) == expected);
}

TEST_CASE("a loader reports its tuned settings and stays within its limits",
          "[flow][promise:bounded-4]") {
  ps::loader loader{counted{100}, ps::shuffled{.seed = 3}, tuned};
  CHECK(loader.options().workers == ps::automatic);
  CHECK(loader.options().prefetch == ps::automatic);
  CHECK(loader.stats().workers == 4);
  CHECK(loader.tuning().now.workers == 1);
  CHECK(loader.tuning().count == 0);
  const auto slots = loader.footprint().slot_count;
  CHECK(slots == loader.footprint().slots_requested);
  CHECK(slots == ps::footprint<drawn_record>({}, tuned).slot_count);
  CHECK(loader.tuning().now.prefetch <= slots - 1);

  // The consumer does no work, so it waits for reads.
  std::size_t batches = 0;
  for (auto& batch : loader.epochs(0, 5)) {
    batches += batch.size() / 10;
    const auto seen = loader.tuning();
    REQUIRE(seen.now.workers >= 1);
    REQUIRE(seen.now.workers <= 4);
    REQUIRE(seen.now.prefetch <= slots - 1);
  }
  CHECK(batches == 1000);
  const auto history = loader.tuning();
  CHECK(history.count >= history.moves.size());
  CHECK(history.moves.size() <= 32);
  std::uint64_t batch = 32;
  for (const auto& move : history.moves) {
    CHECK(move.batch > batch);  // the first 32 batches only serve as a baseline
    batch = move.batch;
    CHECK(move.to != move.from);
    CHECK(move.to.workers <= 4);
    CHECK(move.time_from.count() > 0);
    CHECK(move.time_to.count() > 0);
  }
  if (!history.moves.empty()) {
    const auto& last = history.moves.back();
    CHECK(history.now == (last.kept() ? last.to : last.from));
  }

  ps::loader plain{counted{}, ps::sequential{}, {.batch_size = 10, .workers = 2, .prefetch = 3}};
  CHECK(plain.tuning().now == ps::tuning_setting{2, 3});
  CHECK(plain.tuning().moves.empty());
}

TEST_CASE("a trace records every setting of a tuned loop", "[flow]") {
  ps::trace_recorder recorder;
  auto options = tuned;
  options.instrumentation.trace = &recorder;
  ps::loader loader{counted{20}, ps::shuffled{.seed = 1}, options};
  const auto before_all = recorder.snapshot().taken;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) static_cast<void>(batch);
  }
  const ps::trace_snapshot trace = recorder.snapshot();
  const auto track =
      std::find_if(trace.tracks.begin(), trace.tracks.end(),
                   [](const ps::trace_track& one) { return one.name == "penstock tuning"; });
  REQUIRE(track != trace.tracks.end());
  REQUIRE(track->events.size() >= 3);  // at least one event per range
  CHECK(track->events.front().workers == 1);
  CHECK(track->events.front().begin >= before_all);
  const ps::tuning_history said = loader.tuning();
  CHECK(track->events.size() >= 3 + said.count - (said.count > 0 ? 1 : 0));
  std::size_t pauses = 0;
  for (std::size_t i = 0; i < track->events.size(); ++i) {
    const ps::trace_event& event = track->events[i];
    CHECK(event.stage == ps::trace_stage::setting);
    CHECK_FALSE(event.batch);
    CHECK(event.samples == 0);
    CHECK((event.workers >= 1 && event.workers <= 4));
    CHECK(event.prefetch >= 1);
    CHECK(event.begin <= event.end);
    if (i == 0) continue;
    const ps::trace_event& before = track->events[i - 1];
    CHECK(before.end <= event.begin);
    const bool is_move = before.workers != event.workers || before.prefetch != event.prefetch;
    if (is_move) {
      CHECK(before.end == event.begin);
    } else {
      ++pauses;
    }
  }
  CHECK(pauses == 2);  // no setting is active between the ranges
}

TEST_CASE("initially one worker reads and the others sleep", "[flow][promise:bounded-4]") {
  const numbered data{1000};
  data.state->gate.store(1);
  ps::loader loader{data, ps::sequential{}, tuned};
  loader.start({0, 0}, 1);
  data.state->arrived.wait([](std::uint32_t count) { return count == 1; });
  while (loader.stats().wait_while_inactive.count < 3) std::this_thread::yield();
  CHECK(data.state->running == 1);
  CHECK(loader.stats().wait_for_opener.count == 0);
  data.state->gate.store(0);
  std::uint64_t seen = 0;
  for (; seen < 30; ++seen) {
    const auto batch = loader.next();
    REQUIRE(batch);
    CHECK(labels_of(batch).front() == seen * 10);
    CHECK(data.state->running <= 1);
  }
  loader.stop();
}

TEST_CASE("the lookahead stays within the setting for any number of slots",
          "[flow][promise:bounded-4]") {
  const numbered data{100'000};
  ps::loader loader{data, ps::sequential{}, tuned};
  const std::size_t ahead = loader.tuning().now.prefetch;
  REQUIRE(loader.footprint().slot_count == 2 * ahead + 1);
  auto range = loader.epoch(0);
  auto it = range.begin();
  // The opener sleeps while it is far enough ahead, and is woken when half of its lead is used up.
  for (std::size_t taken = 1; taken < ahead / 2; ++taken) ++it;
  const auto max = static_cast<std::uint32_t>(10 * (ahead / 2 + ahead));
  data.state->arrived.wait([&](std::uint32_t count) { return count >= max; });
  // The opener waits because its lead has reached the limit.
  while (loader.stats().wait_for_slot.count == 0) std::this_thread::yield();
  CHECK(data.state->arrived.load() == max);
  while (it->number() < 24) ++it;
}

TEST_CASE("a loader with sleeping workers ends at any time", "[flow][promise:bounded-4]") {
  SECTION("before its first range") {
    const ps::loader loader{numbered{100}, ps::sequential{}, tuned};
  }
  SECTION("in the middle of a range, twice") {
    ps::loader loader{numbered{1000}, ps::sequential{}, tuned};
    for (int turn = 0; turn < 2; ++turn) {
      std::uint64_t seen = 0;
      for (auto& batch : loader.epoch(0)) {
        CHECK(batch.number() == seen++);
        if (seen == 5) break;
      }
    }
  }
  SECTION("after a stop request") {
    std::stop_source stop;
    auto options = tuned;
    options.stop = stop.get_token();
    ps::loader loader{numbered{1000}, ps::sequential{}, options};
    auto range = loader.epoch(0);
    auto it = range.begin();
    stop.request_stop();
    CHECK_THROWS_AS(
        [&] {
          for (;;) ++it;
        }(),
        ps::cancelled);
  }
  SECTION("after a sample that can't be read, and can be used again") {
    const numbered data{100};
    data.state->bad = 25;
    ps::loader loader{data, ps::sequential{}, tuned};
    for (int turn = 0; turn < 2; ++turn) {
      std::uint64_t seen = 0;
      CHECK_THROWS_AS(
          [&] {
            for (auto& batch : loader.epoch(0)) seen += batch.size();
          }(),
          bad_sample);
      CHECK(seen == 20);
    }
    data.state->bad = numbered::none;
    CHECK(samples_in(loader.epoch(0)) == 100);
  }
  SECTION("in a forked child") {
    ps::loader<numbered, ps::sequential> loader{numbered{100}, ps::sequential{}, tuned};
    CHECK(test::in_child([&] {
            { const auto gone = std::move(loader); }
            return 7;
          }) == 7);
    CHECK(samples_in(loader.epoch(0)) == 100);
  }
}

TEST_CASE("a consumer that keeps leases gets batches within the lookahead", "[flow]") {
  ps::loader loader{numbered{1000}, ps::sequential{}, tuned};
  const std::size_t slots = loader.footprint().slot_count;
  std::vector<ps::host_batch<numbered::record_type, ps::cpu_device>> kept;
  loader.start({0, 0}, 1);
  for (std::size_t i = 0; i < slots; ++i) {
    kept.push_back(loader.next());
    REQUIRE(kept.back());
    CHECK(labels_of(kept.back()).front() == i * 10);
  }
  CHECK_THROWS_AS(loader.next(), ps::leases_exhausted);
}

TEST_CASE("a consumer that only polls a tuned loader gets batches", "[flow]") {
  auto options = tuned;
  // The consumer holds one of the slots.
  const std::size_t slots = GENERATE(2U, 3U, 4U, 17U);
  INFO(slots << " slots");
  const std::size_t bytes = ps::footprint<numbered::record_type>({}, tuned).slot_bytes;
  options.memory.budget = ps::memory_budget::bytes(slots * bytes);
  ps::loader loader{numbered{1000}, ps::sequential{}, options};
  loader.start({0, 0}, 1);
  for (std::uint64_t seen = 0; seen < 100;) {
    const auto batch = loader.try_next();
    if (!batch) {
      std::this_thread::yield();
      continue;
    }
    CHECK(batch.number() == seen++);
  }
  loader.stop();
}

TEST_CASE("automatic tuning uses the granted slots, and is rejected if nothing can be tuned",
          "[flow][promise:bounded-4]") {
  const std::size_t slot = ps::footprint<numbered::record_type>({}, tuned).slot_bytes;
  const auto with_room_for = [&](std::size_t slots, ps::loader_options options) {
    options.memory.budget = ps::memory_budget::bytes(slots * slot);
    return ps::loader{numbered{1000}, ps::sequential{}, options};
  };
  auto loader = with_room_for(3, tuned);
  CHECK(loader.footprint().slot_count == 3);
  CHECK(loader.tuning().now.prefetch == 2);
  CHECK(samples_in(loader.epochs(0, 3)) == 3000);
  CHECK(with_room_for(2, tuned).footprint().slot_count == 2);
  CHECK_THROWS_AS(with_room_for(1, tuned), ps::pinned_budget_exceeded);

  ps::loader_options workers_only{
      .batch_size = 10, .workers = ps::automatic, .tuning = {.max_workers = 2}};
  CHECK_THROWS_AS(with_room_for(2, workers_only), ps::pinned_budget_exceeded);
  workers_only.memory.on_budget_exceeded = ps::budget_action::fewer_slots;
  CHECK(with_room_for(2, workers_only).footprint().slot_count == 2);
  CHECK_THROWS_AS(with_room_for(1, workers_only), ps::pinned_budget_exceeded);
}
