// SPDX-License-Identifier: BSL-1.0
// Tests that library calls do not invalidate a global-mode graph capture on another thread.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/cuda.hpp>

#include "cuda/digits_flow.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

/// Runs `others` on another thread during a capture on this thread. Requires that the capture
/// yields a graph.
void require_capture_survives(const std::function<void()>& others) {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  std::thread{others}.join();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
}

void feed(bool pinned) {
  const ps::cuda_device device;
  const auto stream = device.make_stream();
  ps::loader loader{digits_flow::digits{64},
                    ps::sequential{},
                    device,
                    {.batch_size = 16, .workers = 1, .pinned = pinned}};
  const auto nothing = [](auto, auto, ps::cuda_stream_ref) {};
  ps::transfer feed{loader, stream, ps::on_stream<digits_flow::record>(nothing)};
  int batches = 0;
  for (auto& batch : feed.epochs(0, 2)) {
    static_cast<void>(batch);
    ++batches;
  }
  CHECK(batches == 8);
}

}  // namespace

TEST_CASE("a global capture of one thread survives the library's calls on others",
          "[cuda][fault:devices-7]") {
  const auto policy = GENERATE(fake_cuda::policy::late, fake_cuda::policy::early);
  fake_cuda::reset({.policy = policy});

  SECTION("constructing, running and destroying a feed") {
    require_capture_survives([] { feed(true); });
  }
  SECTION("a feed from pageable memory") {
    require_capture_survives([] { feed(false); });
    CHECK(fake_cuda::statistics().synchronous_copies == 8);
  }
  SECTION("creating, using and destroying streams and events") {
    require_capture_survives([] {
      const ps::cuda_device device;
      const auto stream = device.make_stream();
      auto event = device.make_event();
      device.require_usable(stream);
      device.record(event, stream);
      CHECK_NOTHROW(device.synchronize(event));
      CHECK(device.is_complete(event));
    });
  }
  SECTION("allocating and freeing each kind of memory") {
    require_capture_survives([] {
      const ps::cuda_device device;
      std::vector<std::byte> mine(4096);
      device.deallocate(device.allocate(100), 100);
      device.deallocate_pinned(device.allocate_pinned(100).data, 100);
      device.register_memory(mine.data(), mine.size(), false);
      device.unregister_memory(mine.data(), mine.size());
      CHECK_THROWS_AS(device.allocate(std::size_t{1} << 60), ps::out_of_memory);
    });
  }
  SECTION("capturing, launching and destroying another step's graph") {
    require_capture_survives([] {
      const ps::cuda_device device;
      const auto stream = device.make_stream();
      std::atomic<int> runs{0};  // the two streams run concurrently
      {
        ps::step_graphs graphs{device};
        const auto work = [&runs](ps::cuda_stream_ref on) {
          fake_cuda::launch(on.get(), [&runs] { ++runs; });
        };
        const ps::cuda_stream_ref by_default = cudaStreamLegacy;
        for (int turn = 0; turn < 3; ++turn) {
          graphs.launch(0, 1, stream, work);
          graphs.launch(1, 1, by_default, work);
        }
        device.synchronize(ps::cuda_stream_ref{stream});
        device.synchronize(by_default);
      }
      CHECK(runs == 6);
    });
  }
  CHECK(fake_cuda::expect_clean());
}
