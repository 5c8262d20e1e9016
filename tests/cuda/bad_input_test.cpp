// SPDX-License-Identifier: BSL-1.0
// Tests mistakes that a program can make when it uses a feed. Each mistake must result in a typed
// error, all threads must end, and no object may leak.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;

namespace {

using digits_flow::digits;

ps::loader_options sixteen_each() { return {.batch_size = 16, .workers = 2, .prefetch = 2}; }

template <class Feed>
std::uint64_t batches_of(Feed& feed) {
  std::uint64_t count = 0;
  for (auto& batch : feed.epoch(0)) count += batch.size() == 16;
  return count;
}

}  // namespace

TEST_CASE("a transfer rejects a stream under capture, and capture and transfer continue",
          "[cuda][fault:devices-7]") {
  const clean_fake until_the_end;
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits{}, ps::sequential{}, device, sixteen_each()};
  ps::transfer feed{loader, stream};
  REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK_THROWS_AS(batches_of(feed), ps::capture_in_progress);
  CHECK_THROWS_AS((ps::transfer{loader, stream}), ps::capture_in_progress);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(batches_of(feed) == 6);
}

TEST_CASE("a lease that ends under its stream's capture is reported, and the capture survives",
          "[cuda][fault:devices-7]") {
  const clean_fake until_the_end;
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits{}, ps::sequential{}, device, sixteen_each()};
  ps::transfer feed{loader, stream};
  cudaGraph_t graph = nullptr;
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) {
      if (batch.number() != 1) continue;
      REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal) ==
              cudaSuccess);
      { const auto gone = std::move(batch); }
      CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
    }
  };
  CHECK_THROWS_AS(consume(), ps::capture_in_progress);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a captured stream is rejected even if the body holds another feed's lease", "[cuda]") {
  fake_cuda::reset();
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  const auto another = device.make_stream();
  const ps::loader_options options{.batch_size = 16, .workers = 1, .prefetch = 4};
  ps::loader loader{digits_flow::digits{160}, ps::sequential{}, device, options};
  ps::loader other{digits_flow::digits{160}, ps::sequential{}, device, options};
  ps::transfer feed{loader, stream};
  ps::transfer second{other, another};
  auto range = feed.epoch(0);
  auto it = range.begin();
  auto theirs = second.epoch(0);
  auto their = theirs.begin();
  *it = std::move(*their);
  REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  CHECK_THROWS_AS(++it, ps::capture_in_progress);
  // The transfer queries the capture status first. If it had made the forbidden call, the capture
  // would be invalid.
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  if (graph != nullptr) CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a feed on the default stream continues after an unchecked error of the program",
          "[cuda][fault:devices-6]") {
  const clean_fake until_the_end;
  const ps::cuda_device device{0};
  ps::loader loader{digits{}, ps::sequential{}, device, sixteen_each()};
  ps::transfer feed{loader, cudaStreamLegacy, {.depth = 2}};
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) {
      if (batch.number() == 1) CHECK(cudaSetDevice(77) == cudaErrorInvalidDevice);
    }
  };
  CHECK_THROWS_AS(consume(), ps::pending_cuda_error);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  // The lease of the interrupted loop may report the error a second time. No slot is lost.
  const auto all = [&] {
    try {
      return batches_of(feed);
    } catch (const ps::pending_cuda_error&) {
      return batches_of(feed);
    }
  };
  CHECK(all() == 6);
  CHECK(all() == 6);
}

TEST_CASE("a feed on the default stream reports an error while a blocking stream is captured",
          "[cuda][fault:devices-7]") {
  const clean_fake until_the_end;
  const ps::cuda_device device{0};
  cudaStream_t blocking = nullptr;
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
  ps::loader loader{digits{}, ps::sequential{}, device, sixteen_each()};
  ps::transfer feed{loader, cudaStreamLegacy};
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) {
      if (batch.number() != 1) continue;
      REQUIRE(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    }
  };
  CHECK_THROWS_AS(consume(), ps::capture_in_progress);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  // The library could not wait for the lease that ended during the capture. The slot of this lease
  // is lost, and each step reports the loss.
  CHECK_THROWS_AS(batches_of(feed), ps::capture_in_progress);
  CHECK(cudaStreamDestroy(blocking) == cudaSuccess);
}

TEST_CASE("the per-thread default stream is rejected, the default stream is not",
          "[cuda][fault:devices-8]") {
  const clean_fake until_the_end{{.devices = 2}};
  ps::loader loader{digits{}, ps::sequential{}, ps::cuda_device{1}, sixteen_each()};
  CHECK_THROWS_AS((ps::transfer{loader, cudaStreamPerThread}), ps::unusable_stream);
  // Uses the default stream of device 1 although the current device is 0.
  ps::transfer feed{loader, cudaStreamLegacy};
  CHECK(batches_of(feed) == 6);
  int current = -1;
  CHECK(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
}

TEST_CASE("a lease rejects a second stream of another device", "[cuda][fault:devices-8]") {
  const clean_fake until_the_end{{.devices = 2}};
  const ps::cuda_stream other{1};
  const ps::cuda_stream stream{0};
  ps::loader loader{digits{}, ps::sequential{}, ps::cuda_device{0}, sixteen_each()};
  ps::transfer feed{loader, stream};
  std::uint64_t count = 0;
  for (auto& batch : feed.epoch(0)) {
    CHECK_THROWS_AS(batch.also_used_on(other), ps::stream_of_another_device);
    ++count;
  }
  CHECK(count == 6);
}

TEST_CASE("out_of_memory of the device reports the free memory, and the loader continues",
          "[cuda][fault:memory-4]") {
  const clean_fake until_the_end{{.device_memory = 20'000}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  ps::loader loader{digits{}, ps::sequential{}, device, sixteen_each()};
  const auto problem =
      test::error_of<ps::out_of_memory>([&] { ps::transfer feed{loader, stream, {.depth = 3}}; });
  CHECK(test::has(problem.what(), "device 0 has 20000 free bytes of 20000"));
  CHECK(test::has(problem.what(), "lower depth or batch_size"));
  CHECK(cudaGetLastError() == cudaSuccess);
  ps::transfer feed{loader, stream, {.depth = 1}};
  CHECK(batches_of(feed) == 6);
}

TEST_CASE("a failure to page-lock throws, or falls back to pageable memory if allowed",
          "[cuda][fault:memory-3]") {
  const clean_fake until_the_end{{.pinned_memory = 1000}};
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  auto options = sixteen_each();
  CHECK_THROWS_AS((ps::loader{digits{}, ps::sequential{}, device, options}), ps::out_of_memory);
  options.memory.pageable_fallback = true;
  ps::loader loader{digits{}, ps::sequential{}, device, options};
  CHECK_FALSE(loader.footprint().pinned);
  ps::transfer feed{loader, stream};
  CHECK(batches_of(feed) == 6);
  CHECK(fake_cuda::statistics().synchronous_copies == 6);
}

TEST_CASE("a kernel fault of the program surfaces as a lost context, and all threads end",
          "[cuda][fault:devices-1]") {
  const auto policy =
      GENERATE(fake_cuda::policy::late, fake_cuda::policy::early, fake_cuda::policy::random);
  const std::size_t workers = GENERATE(0U, 2U);
  fake_cuda::reset({.policy = policy, .seed = 2});
  {
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    auto options = sixteen_each();
    options.workers = workers;
    ps::loader loader{digits{}, ps::sequential{}, device, options};
    ps::transfer feed{loader, stream};
    const auto consume = [&] {
      for (auto& batch : feed.epochs(0, 3)) {
        if (batch.number() == 2) fake_cuda::kernel_fault(stream.get(), cudaErrorIllegalAddress);
      }
      device.synchronize(ps::cuda_stream_ref{stream});
    };
    CHECK_THROWS_AS(consume(), ps::cuda_context_lost);
  }
  CHECK(fake_cuda::expect_clean());
  fake_cuda::reset();
}

TEST_CASE("a transfer that outlives the driver ends without an error", "[cuda][fault:devices-9]") {
  fake_cuda::reset();
  {
    const ps::cuda_device device{0};
    const auto stream = device.make_stream();
    ps::loader loader{digits{}, ps::sequential{}, device, sixteen_each()};
    ps::transfer feed{loader, stream};
    auto range = feed.epoch(0);
    auto it = range.begin();
    CHECK(it->size() == 16);
    fake_cuda::unload();
  }
  fake_cuda::reset();
}
