// SPDX-License-Identifier: BSL-1.0
// Tests the prefetch hints of a loader. The batches are the same however the dataset reacts to
// hints.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>
#include <penstock_ext/adaptors/map_batch.hpp>
#include <penstock_ext/adaptors/with_index.hpp>
#include <penstock_ext/adaptors/zip.hpp>

#include "support/catch.hpp"
#include "support/numbered.hpp"
#include "support/planned.hpp"

namespace ps = penstock;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t all_that_comes = (std::numeric_limits<std::uint64_t>::max)();

}  // namespace

TEST_CASE("batches are the same for any lookahead", "[flow][fault:hangs-5]") {
  const planned data{203};
  ps::loader plain{data, ps::shuffled{.seed = 3}, {.batch_size = 16, .workers = 0}};
  const auto expected = labels_in(plain.epochs(0, 3));
  const auto tail = labels_in(plain.batches({1, 5}, ps::until_epoch{3}));
  CHECK(data.seen->reported().empty());
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (const std::uint64_t read_ahead :
         {std::uint64_t{1}, std::uint64_t{55}, std::uint64_t{700}, all_that_comes}) {
      INFO("workers " << workers << ", read_ahead " << read_ahead);
      const planned reported{203};
      ps::loader loader{reported,
                        ps::shuffled{.seed = 3},
                        {.batch_size = 16, .workers = workers, .lookahead_bytes = read_ahead}};
      CHECK(labels_in(loader.epochs(0, 3)) == expected);
      for (auto& batch : loader.epoch(7)) {  // the loop ends after the first batch
        CHECK(batch.size() == 16);
        break;
      }
      CHECK(labels_in(loader.batches({1, 5}, ps::until_epoch{3})) == tail);
      if (read_ahead == 1) CHECK(reported.seen->reported().empty());
    }
  }
}

// Uses no workers, because a worker might read a sample before its hint is recorded. The sample
// would then permanently count as hinted but unread. lookahead_thread_test covers the lookahead
// thread.
TEST_CASE("announced and unread bytes stay within the limit", "[flow][promise:bounded-12]") {
  const planned data{300};
  ps::loader loader{data, ps::shuffled{}, {.batch_size = 8, .workers = 0, .lookahead_bytes = 250}};
  CHECK(labels_in(loader.epochs(0, 3)).size() == 900);
  const std::lock_guard lock{data.seen->mutex};
  CHECK(data.seen->max <= 250);
  CHECK(data.seen->max > 0);
}

TEST_CASE("a pipeline forwards hints to its base datasets", "[flow][promise:bounded-12]") {
  planned one{40};
  one.plans = 400;
  planned other{30};
  other.plans = 300;
  const auto same = [](auto) {};
  const auto copied = [](auto in, auto out) { ps::get<"label">(out) = ps::get<"label">(in); };
  const ps::any_dataset kept{ps::concat(one, other | ps::subset(10, 30)) |
                             ps::map<planned::record_type>(copied) | ps::map(same)};
  // The capacity of the pipeline is the smaller capacity of its two datasets. Each dataset receives
  // the plan of its own samples.
  CHECK(ps::plan_capacity_of(kept) == 300);
  ps::access_plan(kept, std::vector<std::uint64_t>{3, 41, 42, 4});
  CHECK(one.seen->foreseen == std::vector<std::uint64_t>{3, 4});
  CHECK(other.seen->foreseen == std::vector<std::uint64_t>{11, 12});
  ps::access_plan(kept, {});
  CHECK(one.seen->foreseen.empty());
  CHECK(other.seen->foreseen.empty());
  ps::loader loader{kept | ps::with_index<"row">() | ps::map_batch([](auto) {}),
                    ps::sequential{},
                    {.batch_size = 10, .workers = 1, .lookahead_bytes = all_that_comes}};
  one.seen->read_gate.store(1);
  loader.start({0, 0}, 1);
  other.seen->wait_until_reported(20);
  one.seen->read_gate.store(0);
  loader.stop();
  const auto first = one.seen->reported();
  REQUIRE(first.size() >= 30);
  for (std::size_t i = 0; i < first.size(); ++i) CHECK(first[i] == 40 - first.size() + i);
  const auto second = other.seen->reported();
  REQUIRE(second.size() == 20);
  for (std::size_t i = 0; i < 20; ++i) CHECK(second[i] == 10 + i);
  CHECK(loader.stats().ahead.bytes == 10 * (first.size() + second.size()));
}

TEST_CASE("zipped datasets receive hints together within both capacities",
          "[flow][promise:bounded-12]") {
  planned one{20};
  one.keeps = 100;
  one.plans = 200;
  planned other{20};
  other.plans = 300;
  const auto renamed = [](auto in, auto out) { ps::get<"other">(out) = ps::get<"label">(in); };
  using other_record = ps::record<ps::field<"other", std::uint64_t>>;
  const auto both = ps::zip(one, other | ps::map<other_record>(renamed));
  CHECK(ps::storage_size_of(both, 3) == 20);
  CHECK(ps::prefetch_capacity_of(both) == 100);
  CHECK(ps::plan_capacity_of(both) == 200);
  ps::access_plan(both, std::vector<std::uint64_t>{5});
  CHECK(one.seen->foreseen == std::vector<std::uint64_t>{5});
  CHECK(other.seen->foreseen == one.seen->foreseen);
  ps::prefetch_hint(both, std::vector<std::uint64_t>{3, 1});
  CHECK(one.seen->reported() == std::vector<std::uint64_t>{3, 1});
  CHECK(other.seen->reported() == one.seen->reported());
  // An in-memory dataset receives no hints.
  const std::vector<std::uint64_t> numbers(20);
  const ps::memory_dataset<other_record> here{std::span{numbers}};
  const auto half = ps::zip(one, here);
  CHECK(ps::storage_size_of(half, 3) == 10);
  CHECK(ps::prefetch_capacity_of(half) == 100);
  CHECK(ps::storage_size_of(ps::zip(here, one), 3) == 10);
  CHECK(ps::plan_capacity_of(half) == 200);
  CHECK(ps::prefetch_capacity_of(here) == 0);
  CHECK(ps::plan_capacity_of(here | ps::map([](auto) {})) == 0);
  CHECK(ps::prefetch_capacity_of(here | ps::map([](auto) {})) == 0);
}

TEST_CASE("a dataset that hangs or throws on a hint costs no batch", "[flow][fault:hangs-5]") {
  const std::size_t workers = GENERATE(1U, 3U);
  const planned data{100};
  data.seen->gate.store(1);
  data.seen->throws = true;
  ps::loader loader{
      data, ps::sequential{}, {.batch_size = 8, .workers = workers, .lookahead_bytes = 200}};
  // Returns the number of samples in four epochs. After the first batch, the function waits until
  // more than `told` samples were hinted.
  const auto samples_in = [&](std::uint64_t epoch, std::size_t reported) {
    std::size_t samples = 0;
    for (auto& batch : loader.epochs(epoch, epoch + 4)) {
      if (samples == 0) data.seen->wait_until_reported(reported + 1);
      samples += batch.size();
    }
    return samples;
  };
  CHECK(samples_in(0, 0) == 400);
  const std::size_t reported = data.seen->reported().size();
  CHECK(reported <= 20);  // all hints are in the first call, which hangs
  data.seen->gate.store(0);
  CHECK(samples_in(4, reported) == 400);  // the next call follows after the hanging call has thrown
  CHECK(loader.stats().ahead.failed > 0);
}

TEST_CASE("a range that is left or cancelled during a hint ends", "[flow][fault:hangs-5]") {
  const planned data{100};
  data.seen->gate.store(1);
  std::stop_source stop;
  std::optional<ps::loader<ps::detail::dataset_ref<planned>, ps::sequential>> loader;
  loader.emplace(
      data, ps::sequential{},
      ps::loader_options{
          .batch_size = 8, .workers = 2, .stop = stop.get_token(), .lookahead_bytes = 200});
  for (auto& batch : loader->epoch(0)) {
    CHECK(batch.size() == 8);
    break;
  }
  loader->start({1, 0}, 2);
  data.seen->wait_until_reported(1);
  stop.request_stop();
  CHECK_THROWS_AS(loader->next(), ps::cancelled);
  data.seen->gate.store(0);  // the destructor waits for the hint call
  loader.reset();
}

TEST_CASE("with a timeout a loader that owns its dataset abandons a hanging hint",
          "[flow][fault:hangs-5]") {
  const auto seen = std::make_shared<planned::noted>();
  seen->gate.store(1);
  {
    ps::loader loader{
        planned{100, seen},
        ps::sequential{},
        {.batch_size = 8, .workers = 1, .lookahead_bytes = 200, .faults = {.timeout = 1s}}};
    loader.start({0, 0}, 1);
    seen->wait_until_reported(1);
    CHECK(loader.next().size() == 8);
    loader.stop();
  }
  CHECK(seen->gone.load() == 0);  // the detached thread keeps its objects alive
  seen->gate.store(0);
  seen->gone.wait([](std::uint32_t now) { return now != 0; });
}

TEST_CASE("loaders with lookahead may be destroyed at any moment", "[flow][fault:hangs-5]") {
  for (int round = 0; round < 60; ++round) {
    const planned data{64};
    ps::loader loader{data,
                      ps::shuffled{},
                      {.batch_size = 4,
                       .workers = 2,
                       .lookahead_bytes = static_cast<std::uint64_t>(40 + 30 * (round % 5))}};
    if (round % 4 == 0) continue;
    loader.start({0, 0}, 2);
    for (int taken = 0; taken < round % 7; ++taken) CHECK(loader.next().size() == 4);
    if (round % 3 != 0) loader.stop();
  }
}
