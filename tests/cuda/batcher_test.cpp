// SPDX-License-Identifier: BSL-1.0
// Tests that requests from several threads are combined into batches and copied to a GPU.
#include <penstock_ext/serve/batcher.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>
#include <penstock/observe/trace_recorder.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/seeds.hpp"
#include "ext/serve/requests.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using cuda_batcher = ps::batcher<request, ps::cuda_device>;

/// Returns a fake kernel that compares each request with the data written under its tag.
template <class Batch>
auto looks_at(const Batch& batch, std::atomic<std::uint64_t>& right) {
  return [numbers = ps::get<"number">(batch).data(), values = ps::get<"values">(batch).data(),
          tags = tags_of(batch), &right] {
    for (std::size_t i = 0; i < tags.size(); ++i) {
      const auto value = static_cast<float>(tags[i]);
      const bool is_right =
          numbers[i] == tags[i] && values[3 * i] == value && values[3 * i + 2] == value;
      right += is_right ? 1U : 0U;
    }
  };
}

/// Serves `count` requests of a thread on `device`. There are so few slots that each slot is
/// reused.
void serve(const ps::cuda_device& device, std::uint64_t count, ps::trace_recorder* recorder,
           fates& known, std::atomic<std::uint64_t>& right) {
  const auto stream = device.make_stream();
  cuda_batcher requests{device, {.max_batch_size = 4, .depth = 2, .on_unserved = known.noting()}};
  ps::transfer feed{requests, stream, {.depth = 2, .instrumentation = {.trace = recorder}}};
  std::thread submitter{[&] {
    for (std::uint64_t tag = 0; tag < count; ++tag) requests.submit(tag, written(tag));
    requests.close();
  }};
  for (auto& batch : feed.epoch(0)) {
    for (const auto tag : batch.tags()) ++known.served[tag];
    const auto& lease = std::as_const(batch);
    const auto current = device.enter_scope();
    fake_cuda::launch(stream.get(), looks_at(lease, right), {lease.data()});
  }
  submitter.join();
  device.synchronize(ps::cuda_stream_ref{stream});
}

}  // namespace

TEST_CASE("requests arrive on the GPU as they were written, whenever the device works",
          "[cuda][promise:honest-14]") {
  for (std::uint64_t seed = 0; seed < seed_count() + 2; ++seed) {
    INFO("seed " << seed);
    const auto policy = seed == 0   ? fake_cuda::policy::late
                        : seed == 1 ? fake_cuda::policy::early
                                    : fake_cuda::policy::random;
    const clean_fake fresh{{.policy = policy, .seed = seed}};
    fates known{60};
    std::atomic<std::uint64_t> right{0};
    serve(ps::cuda_device{0}, 60, nullptr, known, right);
    CHECK(right == 60);
    CHECK(known.ended_once() == 60);
  }
}

TEST_CASE("a batcher on the GPU uses pinned memory, and its batches are traced", "[cuda]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  CHECK(cuda_batcher{device, {.max_batch_size = 4}}.footprint().bytes == 4 * 512);
  ps::trace_recorder recorder;
  fates known{20};
  std::atomic<std::uint64_t> right{0};
  serve(device, 20, &recorder, known, right);
  std::uint64_t copied = 0;
  for (const auto& track : recorder.snapshot().tracks) {
    for (const auto& event : track.events) {
      if (event.stage == ps::trace_stage::copy) copied += event.samples;
    }
  }
  CHECK(copied == 20);
  CHECK(right == 20);
}

TEST_CASE("small batches of requests that are ready share the records of their copies", "[cuda]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  cuda_batcher requests{device, {.max_batch_size = 1, .depth = 4}};
  for (std::uint64_t tag = 0; tag < 4; ++tag) requests.submit(tag, written(tag));
  requests.close();
  ps::transfer feed{requests, stream, {.depth = 4}};
  auto range = feed.epoch(0);
  const std::uint64_t records = fake_cuda::calls_of("cudaEventRecord");
  CHECK((*range.begin()).tags()[0] == 0);
  CHECK(fake_cuda::calls_of("cudaMemcpyAsync") == 4);
  CHECK(fake_cuda::calls_of("cudaEventRecord") == records + 2);  // two groups of two batches
}

TEST_CASE("requests are returned if CUDA rejects their copy", "[cuda][promise:honest-14]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::early}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  fates known{8};
  {
    cuda_batcher requests{device, {.max_batch_size = 2, .depth = 4, .on_unserved = known.noting()}};
    for (std::uint64_t tag = 0; tag < 8; ++tag) requests.submit(tag, written(tag));
    ps::transfer feed{requests, stream, {.depth = 2}};
    fake_cuda::fail_call_of("cudaMemcpyAsync", 1, cudaErrorUnknown);
    const auto serve_all = [&] {
      for (auto& batch : feed.epoch(0)) {
        for (const auto tag : batch.tags()) ++known.served[tag];
      }
    };
    CHECK_THROWS_AS(serve_all(), ps::cuda_error);
    CHECK(fates::sum(known.returned) >= 2);
    requests.close();
    serve_all();
  }
  CHECK(known.ended_once() == 8);
}

TEST_CASE(
    "a batch of requests that ends during its stream's capture is reported, and others "
    "continue",
    "[cuda][fault:devices-7]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  cuda_batcher requests{device, {.max_batch_size = 1, .depth = 2}};
  const auto end_one_under_capture = [&](std::uint64_t tag) {
    requests.submit(tag, written(tag));
    auto batch = requests.next();
    REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    CHECK_THROWS_AS(batch.release_after(stream), ps::capture_in_progress);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  };
  end_one_under_capture(1);
  for (std::uint64_t tag = 2; tag < 6; ++tag) {
    requests.submit(tag, written(tag));
    CHECK(is_as_tagged(requests.next()));
  }
  end_one_under_capture(6);
  CHECK_THROWS_AS(requests.submit(7, written(7)), ps::leases_exhausted);
}

TEST_CASE("no request is written and no memory is freed during a copy that cannot be waited for",
          "[cuda][fault:devices-5]") {
  const clean_fake fresh{{.policy = fake_cuda::policy::late}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  void* const to = device.allocate(512);
  {
    cuda_batcher requests{device, {.max_batch_size = 1, .depth = 2}};
    requests.submit(1, written(1));
    auto batch = requests.next();
    const std::byte* const read = batch.data();
    device.copy_to_device(to, read, 8, stream);
    fake_cuda::fail_call_of("cudaEventRecord", 0, cudaErrorUnknown);
    fake_cuda::fail_call_of("cudaStreamSynchronize", 0, cudaErrorUnknown);
    CHECK_THROWS_AS(batch.release_after(stream), ps::cuda_error);
    requests.submit(2, written(2));
    const auto second = requests.next();
    CHECK(second.data() != read);
    CHECK_FALSE(requests.try_submit(3, written(3)));
  }
  CHECK(*fake_cuda::inspect(static_cast<std::uint64_t*>(to)) == 1);
  device.deallocate(to, 512);
}
