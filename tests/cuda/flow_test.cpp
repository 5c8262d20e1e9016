// SPDX-License-Identifier: BSL-1.0
// The flow on the CUDA device: right data whatever the order in which the device works, and few calls.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda/digits_flow.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

TEST_CASE("an epoch arrives as it is, whenever the device works and whatever the rings' lengths",
          "[cuda]") {
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

TEST_CASE("an epoch arrives as it is in any random order of the device's work", "[cuda]") {
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

TEST_CASE("only events that the host waits for in the loop are made for threads to sleep on",
          "[cuda]") {
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
  std::vector<fake_cuda::event_use> events;
  for (auto& batch : feed.epoch(0)) {
    batch.also_used_on(second);
    if (batch.index() == 20) events = fake_cuda::events();  // what is destroyed is waited for
  }
  std::size_t slept_on = 0;
  std::size_t of_streams = 0;
  for (const auto& event : events) {
    CHECK((event.flags & cudaEventDisableTiming) != 0);
    const bool sleeps = (event.flags & cudaEventBlockingSync) != 0;
    if (event.host_waits != 0) CHECK(sleeps);
    slept_on += event.host_waits != 0 ? 1U : 0U;
    if (sleeps) continue;
    CHECK(event.stream_waits != 0);
    ++of_streams;
  }
  CHECK(slept_on == loader.footprint().slot_count);
  CHECK(of_streams == 3 * feed.depth());  // copied, released, and released on the second stream
}

TEST_CASE("a batch costs the consumer's thread ten calls, none that allocates or waits", "[cuda]") {
  fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = 3});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{1600},
                    ps::shuffled{.seed = 1},
                    device,
                    {.batch_size = 16, .workers = 2, .prefetch = 4}};
  ps::transfer feed{loader, stream};
  std::map<std::string, std::uint64_t> before;
  int count = 0;
  for (auto& batch : feed.epoch(0)) {
    // From the 20th batch to the 90th: the copies ahead of the first ones are not counted as theirs.
    if (++count == 20) before = fake_cuda::thread_calls();
    if (batch.index() == 89) break;
  }
  // The flow runs up to depth - 1 batches ahead at both counts.
  const auto calls_of = [&](const char* name) {
    auto now = fake_cuda::thread_calls();
    return static_cast<double>(now[name] - before[name]) / 70.0;
  };
  std::map<std::string, double> per_batch;
  for (const auto& [name, calls] : fake_cuda::thread_calls()) {
    if (calls == before[name]) continue;
    per_batch[name] = calls_of(name.c_str());
  }
  for (const auto& [name, calls] : per_batch) UNSCOPED_INFO(name << ": " << calls);
  CHECK(per_batch.size() == 5);
  CHECK(per_batch["cudaMemcpyAsync"] == Approx(1).margin(0.05));
  CHECK(per_batch["cudaStreamWaitEvent"] == Approx(2).margin(0.1));
  CHECK(per_batch["cudaEventRecord"] == Approx(3).margin(0.1));
  CHECK(per_batch["cudaStreamIsCapturing"] == Approx(2).margin(0.1));
  CHECK(per_batch["cudaStreamGetDevice"] == Approx(2).margin(0.1));
  CHECK(fake_cuda::statistics().synchronous_copies == 0);
}
