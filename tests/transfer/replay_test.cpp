// SPDX-License-Identifier: BSL-1.0
// A replay delivers the batches on the device repeatedly, without reads or copies.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/report/diagnose.hpp>

#include "support/catch.hpp"
#include "support/gated_device.hpp"
#include "support/numbered.hpp"
#include "transfer/ten_each.hpp"

namespace ps = penstock;
using std::chrono::nanoseconds;

namespace {

template <class Feed>
std::size_t batches_of_an_epoch(Feed& feed) {
  std::size_t batches = 0;
  for (auto& batch : feed.epoch(0)) batches += batch ? 1U : 0U;
  return batches;
}

}  // namespace

TEST_CASE("a replay delivers the first batches repeatedly and reads nothing", "[transfer]") {
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  const auto depth = GENERATE(std::size_t{1}, std::size_t{3});
  const gated_device device;
  auto stream = device.make_stream();
  const numbered data{100};
  ps::loader loader{data, ps::sequential{}, device, ten_each(workers)};
  ps::transfer feed{loader, stream, {.depth = depth}};
  std::vector<std::uint64_t> numbers;
  std::vector<std::uint64_t> labels;
  std::optional<std::uint64_t> reads;
  for (auto& batch : feed.replay({0, 4}, ps::batch_count{10})) {
    if (!reads) reads = data.state->reads;
    numbers.push_back(batch.number());
    CHECK(ps::get<"label">(batch).extent(0) == 10);
    stream.launch([&labels, view = ps::get<"label">(batch)] { labels.push_back(view(9)); });
  }
  REQUIRE(numbers.size() == 10);
  REQUIRE(labels.size() == 10);  // the replay has ended, so the stream's work is complete
  for (std::size_t i = 0; i < 10; ++i) {
    CHECK(numbers[i] == 4 + i % depth);
    CHECK(labels[i] == numbers[i] * 10 + 9);
  }
  CHECK(data.state->reads == *reads);
  CHECK(device.copies() == depth);

  const auto seen = feed.stats();
  CHECK(seen.replay.batches == 10);
  CHECK(seen.replay.time > nanoseconds{0});
  CHECK(seen.copies == depth);
  CHECK(seen.step.batches == 0);  // a replay does not count as training steps
  CHECK(ps::diagnose(seen - seen, seen).limit == ps::bottleneck::nothing);
  CHECK(batches_of_an_epoch(feed) == 10);
}

TEST_CASE("a replay waits for its stream's work even if it is left early", "[transfer]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, device, ten_each(1)}, stream};
  int steps = 0;
  for (auto& batch : feed.replay({0, 0}, ps::batch_count{100})) {
    stream.launch([&steps] { ++steps; });
    if (batch.number() == 2) break;
  }
  CHECK(steps == 3);
  // A replay synchronizes twice: after its copies and after its last batch.
  const auto loop = [&] {
    for (auto& batch : feed.replay({0, 0}, ps::batch_count{2})) static_cast<void>(batch);
  };
  for (const std::uint64_t call : {0U, 1U}) {
    device.fail_stream_synchronize(call);
    CHECK_THROWS_AS(loop(), device_fault);
    CHECK(batches_of_an_epoch(feed) == 10);
  }
  auto range = feed.replay({0, 0}, ps::batch_count{1});
  auto it = range.begin();
  device.fail_stream_synchronize(0);
  CHECK_THROWS_AS(++it, device_fault);
  CHECK(batches_of_an_epoch(feed) == 10);  // works although the failed range still exists
}

TEST_CASE("during a replay the source can be used by others", "[transfer]") {
  const gated_device device;
  ps::loader loader{numbered{100}, ps::sequential{}, device, ten_each(1)};
  ps::transfer feed{loader, device.inline_stream()};
  ps::transfer other{loader, device.inline_stream()};
  auto range = other.epoch(0);
  decltype(range.begin()) it;
  for (auto& batch : feed.replay({0, 0}, ps::batch_count{1})) {
    CHECK(batch.size() == 10);
    it = range.begin();
  }
  std::size_t batches = 0;
  for (; it != range.end(); ++it) ++batches;
  CHECK(batches == 10);
}

TEST_CASE("a replay that is left early counts its batches", "[transfer]") {
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, ten_each(1)}};
  for (auto& batch : feed.replay({0, 0}, ps::batch_count{1'000'000})) {
    static_cast<void>(batch);
    if (batch.number() == 2) break;
  }
  CHECK(feed.stats().replay.batches == 3);
  for (auto& batch : feed.replay({0, 0}, ps::batch_count{5})) static_cast<void>(batch);
  CHECK(feed.stats().replay.batches == 8);  // the total of all replays
  for (auto& batch : feed.replay({0, 0}, ps::batch_count{0})) static_cast<void>(batch);
  CHECK(feed.stats().replay.batches == 8);
  CHECK(batches_of_an_epoch(feed) == 10);
}

TEST_CASE("a replay does not change the state of the training", "[transfer]") {
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, ten_each(1)}};
  for (auto& batch : feed.epochs(0, 3)) {
    if (batch.epoch() == 2 && batch.number() == 4) break;
  }
  const auto before = feed.state();
  for (auto& batch : feed.replay({0, 0}, ps::batch_count{5}))
    CHECK(feed.state().epoch == batch.epoch() + 2);
  CHECK(feed.state() == before);
  CHECK(feed.state().batch == 5);
}

TEST_CASE("a stop request ends a replay", "[transfer]") {
  std::stop_source source;
  auto options = ten_each(1);
  options.stop = source.get_token();
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, options}};
  std::size_t given = 0;
  const auto loop = [&] {
    for (auto& batch : feed.replay({0, 0}, ps::batch_count{1000})) {
      static_cast<void>(batch);
      if (++given == 5) source.request_stop();
    }
  };
  CHECK_THROWS_AS(loop(), ps::cancelled);
  CHECK(given == 5);
}

TEST_CASE("a second iterator of a finished replay has an empty lease", "[transfer]") {
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, ten_each(1)}};
  auto range = feed.replay({0, 0}, ps::batch_count{2});
  auto it = range.begin();
  const auto other = it;
  std::set<const void*> leases;
  for (; it != range.end(); ++it) {
    CHECK(*other);
    leases.insert(&*other);
  }
  CHECK_FALSE(*other);
  CHECK(leases.count(&*other) == 0);  // leases of an earlier replay are invalid
}

TEST_CASE("a replay uses batches of later epochs if one epoch has too few", "[transfer]") {
  ps::transfer feed{ps::loader{numbered{10}, ps::sequential{}, ten_each(1)}};
  std::vector<std::uint64_t> epochs;
  for (auto& batch : feed.replay({7, 0}, ps::batch_count{6})) epochs.push_back(batch.epoch());
  CHECK(epochs == std::vector<std::uint64_t>{7, 8, 9, 7, 8, 9});
  constexpr std::uint64_t last = (std::uint64_t{1} << 32) - 1;
  for (auto& batch : feed.replay({last, 0}, ps::batch_count{2})) CHECK(batch.epoch() == last);
  CHECK_THROWS_AS(feed.replay({last + 1, 0}, ps::batch_count{2}).begin(), ps::option_error);
}

TEST_CASE("a replay counts as the live range", "[transfer]") {
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, ten_each(1)}};
  {
    auto again = feed.replay({0, 0}, ps::batch_count{5});
    auto it = again.begin();
    auto epoch = feed.epoch(0);
    CHECK_THROWS_AS(epoch.begin(), std::logic_error);
    CHECK_THROWS_AS(feed.replay({0, 0}, ps::batch_count{5}).begin(), std::logic_error);
    CHECK((++it)->number() == 1);
    it = again.begin();
    CHECK(it->number() == 0);
  }
  auto epoch = feed.epoch(0);
  auto it = epoch.begin();
  CHECK_THROWS_AS(feed.replay({0, 0}, ps::batch_count{5}).begin(), std::logic_error);
  CHECK((++it)->number() == 1);
}

TEST_CASE("moving a lease out of a replay is an error when the lease is due", "[transfer]") {
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, ten_each(1)}};
  std::vector<std::uint64_t> numbers;
  const auto loop = [&] {
    for (auto& batch : feed.replay({0, 0}, ps::batch_count{100})) {
      numbers.push_back(batch.number());
      if (batch.number() == 1) const auto kept = std::move(batch);
    }
  };
  CHECK_THROWS_AS(loop(), ps::leases_exhausted);
  CHECK(numbers == std::vector<std::uint64_t>{0, 1, 2, 0});
  CHECK(batches_of_an_epoch(feed) == 10);
}

TEST_CASE("a replay does not use slots that the program holds", "[transfer]") {
  ps::transfer feed{ps::loader{numbered{100}, ps::sequential{}, ten_each(1)},
                    {.depth = 3, .on_slots_exhausted = ps::exhausted_action::wait}};
  ps::transfer<ps::loader<numbered, ps::sequential>>::batch_type held;
  for (auto& batch : feed.epoch(0)) {
    held = std::move(batch);
    break;
  }
  std::vector<std::uint64_t> numbers;
  for (auto& batch : feed.replay({0, 5}, ps::batch_count{4})) numbers.push_back(batch.number());
  CHECK(numbers == std::vector<std::uint64_t>{5, 6, 5, 6});
  CHECK(ps::get<"label">(held)(0) == 0);
}

TEST_CASE("a replay whose batches cannot be read throws the error and ends its range",
          "[transfer]") {
  const numbered data{100};
  data.state->bad = 25;
  ps::transfer feed{ps::loader{data, ps::sequential{}, ten_each(1)}};
  CHECK_THROWS_AS(feed.replay({0, 0}, ps::batch_count{5}).begin(), bad_sample);
  CHECK(feed.last_failure()->batch == 2);
  CHECK(feed.stats().replay.batches == 0);
  data.state->bad = numbered::none;
  CHECK(batches_of_an_epoch(feed) == 10);
}

TEST_CASE("a replay that outlives its transfer is at its end", "[transfer]") {
  std::optional feed{ps::transfer{ps::loader{numbered{100}, ps::sequential{}, ten_each(1)}}};
  auto again = feed->replay({0, 0}, ps::batch_count{100});
  auto it = again.begin();
  CHECK(it->number() == 0);
  feed.reset();
  ++it;
  CHECK(it == again.end());
}

TEST_CASE("a source with fewer batches than slots is replayed with all its batches", "[transfer]") {
  ps::loader loader{numbered{20}, ps::sequential{}, ten_each(1)};
  struct two_batches {
    using record_type = numbered::record_type;
    using device_type = ps::cpu_device;
    using batch_type = ps::host_batch<record_type, device_type>;
    ps::loader<numbered, ps::sequential>* of;
    [[nodiscard]] const device_type& device() const { return of->device(); }
    [[nodiscard]] const auto& layout() const { return of->layout(); }
    void start(const ps::batch_position& from, std::uint64_t) { of->start(from, from.epoch + 1); }
    batch_type next() { return of->next(); }
    batch_type try_next() { return of->try_next(); }
    void stop() noexcept { of->stop(); }
  };
  ps::transfer feed{two_batches{&loader}, {.depth = 4}};
  std::vector<std::uint64_t> numbers;
  for (auto& batch : feed.replay({0, 0}, ps::batch_count{5})) numbers.push_back(batch.number());
  CHECK(numbers == std::vector<std::uint64_t>{0, 1, 0, 1, 0});
  for (auto& batch : feed.replay({0, 2}, ps::batch_count{5}))
    static_cast<void>(batch);  // unreachable, because the source has ended
  CHECK(feed.stats().replay.batches == 5);
}

TEST_CASE("a replay from the end of an epoch delivers batches of the next epoch", "[transfer]") {
  const auto depth = GENERATE(std::size_t{1}, std::size_t{3});
  ps::loader loader{numbered{100}, ps::sequential{}, ten_each(1)};
  ps::transfer feed{loader, {.depth = depth}};
  CHECK(batches_of_an_epoch(feed) == 10);
  const auto at = feed.state();
  std::size_t batches = 0;
  for (auto& batch : feed.replay({at.epoch, at.batch}, ps::batch_count{10}))
    batches += batch.epoch() == 1 ? 1U : 0U;
  CHECK(batches == 10);
}
