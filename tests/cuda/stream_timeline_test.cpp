// SPDX-License-Identifier: BSL-1.0
#include <penstock/device/stream_timeline.hpp>

#include <cstdint>
#include <map>
#include <string>

#include <penstock/cuda.hpp>

#include "cuda/clean_fake.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

using ps::detail::capture_check;
using timeline_type = ps::detail::stream_timeline<ps::cuda_device>;

namespace {

/// A stream of the fake CUDA runtime, which runs work only when a thread waits, and its timeline.
struct marked_stream {
  clean_fake clean{{.policy = fake_cuda::policy::late}};
  ps::cuda_device device{0};
  ps::cuda_stream stream = device.make_stream();
  timeline_type timeline{device, stream, 2, ps::event_wait::by_host};
  int done = 0;

  void launch() {
    fake_cuda::launch(stream.get(), [this] { ++done; });
  }
};

/// Returns the CUDA runtime calls that `work` makes on this thread.
template <class Work>
std::map<std::string, std::uint64_t> calls_of(const Work& work) {
  const auto before = fake_cuda::thread_calls();
  work();
  std::map<std::string, std::uint64_t> made;
  for (const auto& [name, now] : fake_cuda::thread_calls()) {
    const auto earlier = before.find(name);
    const std::uint64_t count = now - (earlier == before.end() ? 0 : earlier->second);
    if (count != 0 && name != "cudaPeekAtLastError") made[name] = count;
  }
  return made;
}

using call_counts = std::map<std::string, std::uint64_t>;

}  // namespace

TEST_CASE("a mark is one record, and a wait is at most one call", "[cuda]") {
  marked_stream on;
  const auto other = on.device.make_stream();
  CHECK(calls_of([&] { (void)on.timeline.mark(); }) ==
        call_counts{{"cudaStreamIsCapturing", 1}, {"cudaEventRecord", 1}});
  const auto mark = [&] { return on.timeline.mark(capture_check::done).at; };
  CHECK(calls_of([&] { (void)mark(); }) == call_counts{{"cudaEventRecord", 1}});
  on.launch();
  const auto end = mark();
  timeline_type::point known = 0;
  CHECK(calls_of([&] { on.timeline.wait(end, other, known); }) ==
        call_counts{{"cudaStreamWaitEvent", 1}});
  CHECK(calls_of([&] { on.timeline.wait(end, other, known); }).empty());
  bool is_reached = true;
  auto query = calls_of([&] { is_reached = on.timeline.reached(end); });
  CHECK_FALSE(is_reached);
  CHECK(query["cudaEventQuery"] == 1);
  CHECK(query["cudaEventSynchronize"] == 0);
  on.timeline.wait(end);
  CHECK(on.done == 1);
  CHECK(calls_of([&] {
          on.timeline.wait(end);
          CHECK(on.timeline.reached(end));
          on.timeline.wait(end, other);
        }).empty());
}

TEST_CASE("a mark during a capture is rejected, and the capture remains valid",
          "[cuda][fault:devices-7]") {
  marked_stream on;
  REQUIRE(cudaStreamBeginCapture(on.stream.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  const auto lost = on.timeline.mark();
  CHECK(lost.at == timeline_type::never);  // No thread can wait for a captured stream either.
  CHECK_THROWS_AS(lost.rethrow_error(), ps::capture_in_progress);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(on.stream.get(), &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  on.launch();
  const auto next = on.timeline.mark();
  CHECK(next.error == nullptr);
  on.timeline.wait(next.at);
  CHECK(on.done == 1);
}

TEST_CASE("a mark waits for the earlier work if recording fails", "[cuda][fault:devices-5]") {
  marked_stream on;
  on.launch();
  fake_cuda::fail_call_of("cudaEventRecord", 0, cudaErrorUnknown);
  const auto rejected = on.timeline.mark();
  CHECK(on.done == 1);
  CHECK(rejected.at == 0);
  CHECK_THROWS_AS(rejected.rethrow_error(), ps::cuda_error);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(on.timeline.mark().at == 1);
}

TEST_CASE("a mark is lost if recording and waiting both fail", "[cuda][fault:devices-5]") {
  marked_stream on;
  on.launch();
  fake_cuda::fail_call_of("cudaEventRecord", 0, cudaErrorUnknown);
  fake_cuda::fail_call_of("cudaStreamSynchronize", 0, cudaErrorUnknown);
  const auto lost = on.timeline.mark();
  CHECK(lost.at == timeline_type::never);
  CHECK(on.done == 0);
  CHECK_THROWS_AS(lost.rethrow_error(), ps::cuda_error);
  // Such a call would invalidate a capture.
  CHECK(fake_cuda::calls_of("cudaDeviceSynchronize") == 0);
}

TEST_CASE("a failed wait throws, and its point counts as not reached", "[cuda][fault:devices-3]") {
  marked_stream on;
  on.launch();
  const auto end = on.timeline.mark();
  for (const auto* const call : {"cudaEventQuery", "cudaStreamWaitEvent"}) {
    fake_cuda::fail_call_of(call, 0, cudaErrorUnknown);
    timeline_type::point known = 0;
    const auto other = on.device.make_stream();
    const bool is_query = std::string{call} == "cudaEventQuery";
    CHECK_THROWS_AS(is_query ? on.timeline.wait(end.at) : on.timeline.wait(end.at, other, known),
                    ps::cuda_error);
    CHECK(known == 0);
    CHECK(on.done == 0);
  }
  fake_cuda::fail_call_of("cudaEventQuery", 0, cudaErrorUnknown);
  CHECK(on.timeline.try_synchronize(end.at));  // The failed query is repeated.
  CHECK(on.done == 1);
  on.launch();
  const auto next = on.timeline.mark();
  for (std::uint64_t k = 0; k < 2; ++k) {
    fake_cuda::fail_call_of("cudaEventQuery", k, cudaErrorUnknown);
  }
  CHECK_FALSE(on.timeline.try_synchronize(next.at));
  CHECK(on.timeline.try_synchronize(next.at));
}

TEST_CASE("marks are lost after the device is lost, and memory may be freed",
          "[cuda][fault:devices-1]") {
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  timeline_type timeline{device, stream, 2, ps::event_wait::by_host};
  const auto before = timeline.mark();
  fake_cuda::fail_from(0, cudaErrorLaunchFailure);
  const auto lost = timeline.mark();
  CHECK(lost.at == timeline_type::never);
  CHECK_THROWS_AS(lost.rethrow_error(), ps::cuda_context_lost);
  CHECK_THROWS_AS(timeline.wait(before.at), ps::cuda_context_lost);
  CHECK_THROWS_AS(timeline.reached(before.at), ps::cuda_context_lost);
  CHECK(timeline.try_synchronize(before.at));  // The lost device no longer runs work.
}
