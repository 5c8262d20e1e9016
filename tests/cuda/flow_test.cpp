// SPDX-License-Identifier: BSL-1.0
// Tests the flow on the CUDA device. The data must be correct in any order of the device's work,
// with few calls.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/grouping.hpp"

namespace ps = penstock;

TEST_CASE("an epoch arrives unchanged, whenever the device works and for any depth", "[cuda]") {
  const auto policy = GENERATE(fake_cuda::policy::late, fake_cuda::policy::early);
  for (const std::size_t workers : {0U, 1U, 3U}) {
    for (const std::size_t prefetch : {1U, 2U, 5U}) {
      for (const std::size_t depth : {1U, 2U, 3U}) {
        INFO("workers " << workers << ", prefetch " << prefetch << ", depth " << depth);
        fake_cuda::reset({.policy = policy});
        digits_flow::outcome found;
        digits_flow::run(
            ps::cuda_device{0},
            {.samples = 100, .workers = workers, .prefetch = prefetch, .depth = depth, .epochs = 2},
            found);
        CHECK(found.right == 14);
        CHECK(found.wrong == 0);
        CHECK(fake_cuda::expect_clean());
      }
    }
  }
}

TEST_CASE("an epoch arrives unchanged in any random order of the device's work",
          "[cuda][promise:race-free-4]") {
  for (std::uint64_t seed = 0; seed < seed_count(); ++seed) {
    INFO("seed " << seed);
    fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = seed});
    digits_flow::outcome found;
    digits_flow::run(ps::cuda_device{0}, {.workers = 1 + seed % 2, .prefetch = 1 + seed % 3},
                     found);
    CHECK(found.right == 6);
    CHECK(found.wrong == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("no event uses blocking synchronization, and no thread spins on an event", "[cuda]") {
  const auto policy = GENERATE(fake_cuda::policy::late, fake_cuda::policy::random);
  const auto workers = GENERATE(std::size_t{0}, std::size_t{2});
  fake_cuda::reset({.policy = policy, .seed = 5});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  ps::loader loader{digits_flow::digits{400},
                    ps::sequential{},
                    device,
                    {.batch_size = 16, .workers = workers, .prefetch = 2}};
  ps::transfer feed{loader, stream};
  for (auto& batch : feed.epoch(0)) {
    batch.also_used_on(second);
    if (batch.number() < 20) continue;
    CHECK(fake_cuda::calls_of("cudaEventQuery") > 0);  // destroying the feed would otherwise wait
    CHECK(fake_cuda::calls_of("cudaEventSynchronize") == 0);
  }
  for (const auto& event : fake_cuda::events()) CHECK(event.flags == cudaEventDisableTiming);
}

namespace {

/// Returns the calls per batch on the consumer thread, by function, in the middle of a loop.
template <class Feed>
std::map<std::string, double> calls_a_batch(Feed& feed) {
  std::map<std::string, std::uint64_t> before;
  std::map<std::string, std::uint64_t> after;
  for (auto& batch : feed.epoch(0)) {
    // Counts the calls between batches 19 and 89. The range excludes the initial copies and the end
    // of the loop. At both points, the flow is up to depth - 1 batches ahead of the consumer.
    if (batch.number() == 19) before = fake_cuda::thread_calls();
    if (batch.number() != 89) continue;
    after = fake_cuda::thread_calls();
    break;
  }
  std::map<std::string, double> calls;
  for (const auto& [name, now] : after) {
    if (now != before[name]) calls[name] = static_cast<double>(now - before[name]) / 70.0;
  }
  for (const auto& [name, number] : calls) UNSCOPED_INFO(name << ": " << number);
  return calls;
}

/// A loader that always appears to be far enough ahead, because polling waits for the next batch.
template <class Loader>
class always_ready : public Loader {
 public:
  explicit always_ready(Loader&& of) : Loader(std::move(of)) {}
  [[nodiscard]] auto try_next() { return Loader::next(); }
};

const ps::loader_options four_ahead{.batch_size = 16, .workers = 2, .prefetch = 4};

}  // namespace

namespace {

/// Runs an epoch of 20 batches in groups of at most `group` batches and checks each batch. Keeps
/// every third lease, and later checks and drops these leases out of order. Also uses every fourth
/// lease on a second stream.
void run_in_groups(std::size_t depth, std::size_t group, std::size_t workers, std::uint64_t stop,
                   digits_flow::outcome& found) {
  const grouping<ps::cuda_device> device{0};
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  always_ready loader{ps::loader{digits_flow::digits{320},
                                 ps::sequential{},
                                 device,
                                 {.batch_size = 16, .workers = workers, .prefetch = 5}}};
  device.grouped_bytes = group * loader.layout().bytes();
  ps::transfer feed{loader, stream, {.depth = depth}};
  std::vector<decltype(feed)::batch_type> kept;
  for (auto& batch : feed.epoch(0)) {
    look_at(batch, stream, found);
    const std::uint64_t number = batch.number();
    if (number % 4 == 1) {
      batch.also_used_on(second);
      look_at(batch, second, found);
    }
    if (number % 3 == 0 && depth > 2) {
      kept.push_back(std::move(batch));
      if (kept.size() == 2) {
        for (const std::size_t i : {1U, 0U}) {
          look_at(kept[i], stream, found);
          kept.pop_back();
        }
      }
    }
    if (number == stop) break;
  }
  kept.clear();
  device.synchronize(ps::cuda_stream_ref{stream});
  device.synchronize(ps::cuda_stream_ref{second});
}

}  // namespace

TEST_CASE("batches that share calls arrive unchanged, in any order of the device's work",
          "[cuda][promise:race-free-2]") {
  for (std::uint64_t seed = 0; seed < seed_count(); ++seed) {
    const std::size_t depth = 1 + seed % 7;
    const std::size_t group = seed % 3 == 0 ? 16 : 1 + seed / 7 % 4;
    const std::uint64_t stop = seed % 5 == 4 ? 7 + seed % 11 : 19;
    INFO("seed " << seed << ", depth " << depth << ", group " << group << ", stop " << stop);
    const auto policy = policy_of(seed);
    fake_cuda::reset({.policy = policy, .seed = seed});
    digits_flow::outcome found;
    run_in_groups(depth, group, seed % 3, stop, found);
    CHECK(found.right >= stop + 1);
    CHECK(found.wrong == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("a group has 1 to 16 batches", "[cuda][promise:race-free-2]") {
  using device = grouping<ps::cuda_device>;
  for (const std::size_t bytes : {0U, 99U, 100U, 250U, 1600U, 1700U}) {
    device::grouped_bytes = bytes;
    const std::size_t fitting = bytes / 100;
    CHECK(ps::detail::preferred_group<device>(100) ==
          (std::min)((std::max)(fitting, std::size_t{1}), std::size_t{16}));
  }
}

TEST_CASE("a failed call within a group is reported, and no batch is wrong or lost",
          "[cuda][fault:devices-3]") {
  const std::string name = GENERATE("cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent",
                                    "cudaStreamIsCapturing");
  for (std::uint64_t k = 0; k < 12; ++k) {
    INFO(name << " " << k);
    fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = k});
    digits_flow::outcome found;
    {
      const ps::cuda_device device{0};
      const auto stream = device.make_stream();
      always_ready loader{ps::loader{digits_flow::digits{800},
                                     ps::sequential{},
                                     device,
                                     {.batch_size = 16, .workers = 1, .prefetch = 4}}};
      ps::transfer feed{loader, stream, {.depth = 5}};
      fake_cuda::fail_call_of(name, k, cudaErrorUnknown);
      const auto consume = [&] {
        for (auto& batch : feed.epoch(0)) look_at(batch, stream, found);
      };
      CHECK_THROWS_AS(consume(), ps::cuda_error);
      const std::uint64_t before = found.right;
      consume();  // all slots and leases are available again
      device.synchronize(ps::cuda_stream_ref{stream});
      CHECK(found.right >= before + 50);
    }
    CHECK(found.wrong == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("a stream waits for a copy only if the host does not see that the copy is complete",
          "[cuda][promise:race-free-4]") {
  const auto policy = GENERATE(fake_cuda::policy::early, fake_cuda::policy::late);
  const bool is_early = policy == fake_cuda::policy::early;
  // With the late policy, a copy completes only after it has been queried many times.
  const bool spins = !is_early && GENERATE(false, true);
  const std::chrono::nanoseconds spin = spins ? std::chrono::hours{1} : std::chrono::hours{0};
  constexpr std::uint64_t batches = 20;
  fake_cuda::reset({.policy = policy});
  digits_flow::outcome found;
  {
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    const auto second = device.make_stream();
    // The worker never waits for a copy, because it uses each host slot once.
    ps::loader loader{digits_flow::digits{16 * batches},
                      ps::sequential{},
                      device,
                      {.batch_size = 16, .workers = 1, .prefetch = batches + 2}};
    // Two slots are too few for a group.
    ps::transfer feed{loader, stream, {.depth = 2, .tuning = {.spin = spin}}};
    const auto before = fake_cuda::thread_calls();
    for (auto& batch : feed.epoch(0)) {
      look_at(batch, stream, found);
      batch.also_used_on(second);
      look_at(batch, second, found);
      // Ends the steps. The early policy then completes the next copy.
      device.synchronize(ps::cuda_stream_ref{stream});
      device.synchronize(ps::cuda_stream_ref{second});
    }
    auto calls = fake_cuda::thread_calls();
    for (const auto& [name, count] : before) calls[name] -= count;
    CHECK((calls["cudaEventQuery"] == batches) != spins);
    // Each copy, except the first two, waits for two streams that have used its slot.
    const std::uint64_t by_copies = 2 * (batches - 2);
    CHECK(calls["cudaStreamWaitEvent"] - by_copies == (is_early || spins ? 0 : 2 * batches));
  }
  CHECK(found.right == 2 * batches);
  CHECK(found.wrong == 0);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a rejected query of a copy ends the loop with its error, and the next loop is right",
          "[cuda][fault:devices-3]") {
  constexpr std::uint64_t batches = 10;
  for (std::uint64_t k = 0; k < batches; ++k) {
    INFO("query " << k);
    fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = k});
    digits_flow::outcome found;
    {
      const ps::cuda_device device{0};
      const auto stream = device.make_stream();
      // The workers query no copy in the first loop, because they use each host slot once.
      ps::loader loader{digits_flow::digits{16 * batches},
                        ps::sequential{},
                        device,
                        {.batch_size = 16, .workers = 1, .prefetch = batches + 2}};
      ps::transfer feed{loader, stream, {.depth = 2}};
      fake_cuda::fail_call_of("cudaEventQuery", k, cudaErrorUnknown);
      const auto consume = [&] {
        for (auto& batch : feed.epoch(0)) look_at(batch, stream, found);
      };
      CHECK_THROWS_AS(consume(), ps::cuda_error);
      const std::uint64_t before = found.right;
      consume();
      device.synchronize(ps::cuda_stream_ref{stream});
      CHECK(found.right >= before + batches);
    }
    CHECK(found.wrong == 0);
    CHECK(fake_cuda::expect_clean());
  }
}

TEST_CASE("a batch costs the consumer four calls and half a query, none of which waits",
          "[cuda][promise:bounded-2]") {
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 3});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  always_ready loader{
      ps::loader{digits_flow::digits{1600}, ps::shuffled{.seed = 1}, device, four_ahead}};
  // For each group, the feed makes one mark, one query, one wait per stream, and one record for the
  // releases.
  for (const std::size_t depth : {3U, 4U, 5U}) {
    INFO("depth " << depth);
    const double groups = depth == 5 ? 1 / 3.0 : 1 / 2.0;
    ps::transfer feed{loader, stream, {.depth = depth}};
    auto calls = calls_a_batch(feed);
    CHECK(calls.size() == 7);
    CHECK(calls["cudaMemcpyAsync"] == Approx(1).margin(0.1));
    // If a worker has already observed that a copy is complete, no thread queries the copy or waits
    // for it.
    CHECK(calls["cudaEventQuery"] < groups + 0.1);
    CHECK(calls["cudaThreadExchangeStreamCaptureMode"] == Approx(2 * calls["cudaEventQuery"]));
    CHECK(calls["cudaStreamWaitEvent"] < 2 * groups + 0.1);
    CHECK(calls["cudaEventRecord"] == Approx(2 * groups).margin(0.1));
    CHECK(calls["cudaStreamIsCapturing"] == Approx(1).margin(0.05));
    CHECK(calls["cudaPeekAtLastError"] < 2 + 7 * groups + 0.3);  // before each call
  }
  CHECK(fake_cuda::statistics().synchronous_copies == 0);
}

TEST_CASE("a batch that shares no calls costs the consumer six and a query",
          "[cuda][promise:bounded-2]") {
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 3});
  const grouping<ps::cuda_device> device{0};
  const auto stream = device.make_stream();
  always_ready loader{
      ps::loader{digits_flow::digits{1600}, ps::shuffled{.seed = 1}, device, four_ahead}};
  const auto depth = GENERATE(std::size_t{2}, std::size_t{4});
  device.grouped_bytes = (depth == 2 ? 16 : 1) * loader.layout().bytes();
  ps::transfer feed{loader, stream, {.depth = depth}};
  auto calls = calls_a_batch(feed);
  CHECK(calls.size() == 7);
  CHECK(calls["cudaMemcpyAsync"] == Approx(1).margin(0.05));
  CHECK(calls["cudaEventQuery"] < 1.1);
  CHECK(calls["cudaThreadExchangeStreamCaptureMode"] == Approx(2 * calls["cudaEventQuery"]));
  CHECK(calls["cudaStreamWaitEvent"] < 2.1);  // a completed copy needs no wait
  // The feed makes one record for the copy and one for the release.
  CHECK(calls["cudaEventRecord"] == Approx(2).margin(0.1));
  CHECK(calls["cudaStreamIsCapturing"] == Approx(1).margin(0.05));
  CHECK(calls["cudaPeekAtLastError"] < 9.3);  // in addition, one check before each call
}

TEST_CASE("a worker queries a finished copy once and makes no other call", "[cuda]") {
  fake_cuda::reset({.policy = fake_cuda::policy::early});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  // Starts the worker before the calls are counted.
  always_ready loader{ps::loader{digits_flow::digits{1600},
                                 ps::shuffled{.seed = 1},
                                 device,
                                 {.batch_size = 16, .workers = 1, .prefetch = 4}}};
  ps::transfer feed{loader, stream};
  std::uint64_t before = 0;
  std::uint64_t looks = 0;
  std::uint64_t exchanges = 0;
  const auto calls_of = [](const char* name) {
    return fake_cuda::calls_of(name) - fake_cuda::thread_calls()[name];
  };
  for (auto& batch : feed.epoch(0)) {
    if (batch.number() == 19) {
      before = fake_cuda::calls_of("cudaMemcpyAsync");
      looks = calls_of("cudaEventQuery");
      exchanges = calls_of("cudaThreadExchangeStreamCaptureMode");
    }
    if (batch.number() == 89) break;
  }
  const std::uint64_t batches = fake_cuda::calls_of("cudaMemcpyAsync") - before;
  CHECK(calls_of("cudaEventQuery") - looks <= batches + 5);  // one query per returned slot
  CHECK(calls_of("cudaThreadExchangeStreamCaptureMode") == exchanges);
  CHECK(calls_of("cudaEventSynchronize") == 0);
}

TEST_CASE("a transform costs the consumer four more calls at most, in addition to its launch",
          "[cuda][promise:bounded-2]") {
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 4});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  always_ready loader{
      ps::loader{digits_flow::digits{1600}, ps::shuffled{.seed = 1}, device, four_ahead}};
  const auto nothing = [](auto, auto, ps::cuda_stream_ref) {};
  ps::transfer feed{loader, stream, ps::on_stream<digits_flow::record>(nothing)};
  auto calls = calls_a_batch(feed);
  CHECK(calls.size() == 8);
  CHECK(calls["cudaMemcpyAsync"] == Approx(1).margin(0.05));
  CHECK(calls["cudaEventQuery"] < 1.1);
  CHECK(calls["cudaStreamWaitEvent"] < 3.2);
  CHECK(calls["cudaEventRecord"] == Approx(2.5).margin(0.1));
  CHECK(calls["cudaStreamIsCapturing"] == Approx(1).margin(0.05));
  CHECK(calls["cuCtxGetDevice"] == Approx(1).margin(0.05));
}

TEST_CASE("the device times some batches without a wait and without an error", "[cuda]") {
  const auto policy = GENERATE(fake_cuda::policy::late, fake_cuda::policy::random);
  const bool fails = GENERATE(false, true);
  fake_cuda::reset({.policy = policy, .seed = 7});
  {
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    ps::loader loader{
        digits_flow::digits{1600}, ps::sequential{}, device, {.batch_size = 16, .workers = 1}};
    ps::transfer feed{
        loader, stream, {.depth = ps::automatic, .instrumentation = {.time_device = true}}};
    if (fails) fake_cuda::fail_call_of("cudaEventElapsedTime", 0, cudaErrorInvalidValue);
    std::uint64_t batches = 0;
    for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : feed.epoch(epoch)) {
        ++batches;
        if (batch.number() % 8 == 0) stream.synchronize();
      }
    }
    CHECK(batches == 200);
    const ps::device_stats said = feed.stats().device;
    if (fails) {
      CHECK(said.batches == 0);
    } else {
      CHECK(said.batches >= 2);
      // In the fake CUDA runtime, a copy takes 1 ms, and a body that launches nothing takes no
      // time.
      CHECK(said.copy == std::chrono::milliseconds{said.batches});
    }
    for (const auto& event : fake_cuda::events()) {
      if ((event.flags & cudaEventDisableTiming) == 0) CHECK(event.host_waits == 0);
    }
  }
  CHECK(fake_cuda::expect_clean());
}
