// SPDX-License-Identifier: BSL-1.0
// The flow on the CUDA device: right data whatever the order in which the device works, and few
// calls.
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

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
          "[cuda][promise:race-free-11]") {
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

TEST_CASE("no event has the driver interrupted, and no thread spins for one", "[cuda]") {
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
    CHECK(fake_cuda::calls_of("cudaEventQuery") > 0);  // what is destroyed is waited for otherwise
    CHECK(fake_cuda::calls_of("cudaEventSynchronize") == 0);
  }
  for (const auto& event : fake_cuda::events()) CHECK(event.flags == cudaEventDisableTiming);
}

namespace {

/// Calls of the consumer's thread a batch, by function, of a loop over the feed in the middle of
/// it.
template <class Feed>
std::map<std::string, double> calls_a_batch(Feed& feed) {
  std::map<std::string, std::uint64_t> before;
  int count = 0;
  for (auto& batch : feed.epoch(0)) {
    // From the 20th batch to the 90th: the copies ahead of the first ones are not counted as
    // theirs.
    if (++count == 20) before = fake_cuda::thread_calls();
    if (batch.number() == 89) break;
  }
  // The flow runs up to depth - 1 batches ahead at both counts.
  std::map<std::string, double> calls;
  for (const auto& [name, now] : fake_cuda::thread_calls()) {
    if (now != before[name]) calls[name] = static_cast<double>(now - before[name]) / 70.0;
  }
  for (const auto& [name, number] : calls) UNSCOPED_INFO(name << ": " << number);
  return calls;
}

const ps::loader_options four_ahead{.batch_size = 16, .workers = 2, .prefetch = 4};

}  // namespace

TEST_CASE("a batch costs the consumer six calls, none of which allocates or waits",
          "[cuda][promise:bounded-2]") {
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 3});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{1600}, ps::shuffled{.seed = 1}, device, four_ahead};
  ps::transfer feed{loader, stream};
  auto calls = calls_a_batch(feed);
  CHECK(calls.size() == 5);
  CHECK(calls["cudaMemcpyAsync"] == Approx(1).margin(0.05));
  CHECK(calls["cudaStreamWaitEvent"] == Approx(2).margin(0.1));
  CHECK(calls["cudaEventRecord"] == Approx(2).margin(0.1));  // of the copy, and of the release
  CHECK(calls["cudaStreamIsCapturing"] == Approx(1).margin(0.05));
  CHECK(calls["cudaPeekAtLastError"] == Approx(6).margin(0.3));  // besides: one for each
  CHECK(fake_cuda::statistics().synchronous_copies == 0);
}

TEST_CASE("a worker looks once for the end of a copy that is over, and makes no other call",
          "[cuda]") {
  fake_cuda::reset({.policy = fake_cuda::policy::early});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{1600}, ps::shuffled{.seed = 1}, device, four_ahead};
  ps::transfer feed{loader, stream};
  std::uint64_t before = 0;
  std::uint64_t looks = 0;
  std::uint64_t exchanges = 0;
  const auto calls_of = [](const char* name) { return fake_cuda::calls_of(name); };
  for (auto& batch : feed.epoch(0)) {
    if (batch.number() == 19) {
      before = calls_of("cudaMemcpyAsync");
      looks = calls_of("cudaEventQuery");
      exchanges = calls_of("cudaThreadExchangeStreamCaptureMode");
    }
    if (batch.number() == 89) break;
  }
  const std::uint64_t batches = calls_of("cudaMemcpyAsync") - before;
  CHECK(calls_of("cudaEventQuery") - looks <= batches + 5);  // one for each slot that comes back
  CHECK(calls_of("cudaThreadExchangeStreamCaptureMode") == exchanges);
  CHECK(calls_of("cudaEventSynchronize") == 0);
}

TEST_CASE("a transform costs the consumer three more calls, besides its launch",
          "[cuda][promise:bounded-2]") {
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 4});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{1600}, ps::shuffled{.seed = 1}, device, four_ahead};
  const auto nothing = [](auto, auto, ps::cuda_stream_ref) {};
  ps::transfer feed{loader, stream, ps::on_stream<digits_flow::record>(nothing)};
  auto calls = calls_a_batch(feed);
  CHECK(calls.size() == 6);
  CHECK(calls["cudaMemcpyAsync"] == Approx(1).margin(0.05));
  CHECK(calls["cudaStreamWaitEvent"] == Approx(4).margin(0.2));
  CHECK(calls["cudaEventRecord"] == Approx(3).margin(0.1));
  CHECK(calls["cudaStreamIsCapturing"] == Approx(1).margin(0.05));
  CHECK(calls["cuCtxGetDevice"] == Approx(1).margin(0.05));
}

TEST_CASE("the device's times of some batches come with no wait and no error", "[cuda]") {
  const auto policy = GENERATE(fake_cuda::policy::late, fake_cuda::policy::random);
  const bool fails = GENERATE(false, true);
  fake_cuda::reset({.policy = policy, .seed = 7});
  {
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    ps::loader loader{
        digits_flow::digits{1600}, ps::sequential{}, device, {.batch_size = 16, .workers = 1}};
    ps::transfer feed{loader, stream, {.depth = ps::automatic, .time_device = true}};
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
      // the double's clock: a millisecond for the copy, nothing for a body that launches nothing
      CHECK(said.copy == std::chrono::milliseconds{said.batches});
    }
    for (const auto& event : fake_cuda::events()) {
      if ((event.flags & cudaEventDisableTiming) == 0) CHECK(event.host_waits == 0);
    }
  }
  CHECK(fake_cuda::expect_clean());
}
