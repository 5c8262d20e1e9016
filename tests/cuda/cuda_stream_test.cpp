// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include <penstock/cuda.hpp>

#include "cuda/clean_fake.hpp"
#include "cuda/digits_flow.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

struct wrapper {
  cudaStream_t handle;
  [[nodiscard]] cudaStream_t get() const { return handle; }
};
struct unrelated {
  [[nodiscard]] int get() const { return 0; }
};

static_assert(std::is_convertible_v<cudaStream_t, ps::cuda_stream_ref>);
static_assert(std::is_convertible_v<wrapper, ps::cuda_stream_ref>);
static_assert(std::is_convertible_v<const ps::cuda_stream&, ps::cuda_stream_ref>);
static_assert(!std::is_convertible_v<int, ps::cuda_stream_ref>);
static_assert(!std::is_convertible_v<std::nullptr_t, ps::cuda_stream_ref>);
static_assert(!std::is_convertible_v<unrelated, ps::cuda_stream_ref>);
static_assert(!std::is_default_constructible_v<ps::cuda_stream_ref>);

}  // namespace

TEST_CASE("a stream reference comes from a handle, or from an owner of one", "[cuda]") {
  fake_cuda::reset();
  cudaStream_t handle = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking) == cudaSuccess);
  const ps::cuda_stream_ref one = handle;
  const ps::cuda_stream_ref two = wrapper{handle};
  CHECK(one.get() == handle);
  CHECK(one == two);
  CHECK(ps::cuda_stream_ref{cudaStreamPerThread}.get() == cudaStreamPerThread);
  CHECK(cudaStreamDestroy(handle) == cudaSuccess);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("the error for a null stream handle explains what a null handle means",
          "[cuda][fault:devices-8]") {
  const cudaStream_t null = nullptr;
  CHECK(ps::cuda_stream_ref{null}.get() == cudaStreamLegacy);
  CHECK(ps::detail::named_stream<false>(null) == cudaStreamLegacy);
  // A source file compiled with --default-stream per-thread uses the per-thread stream, regardless
  // of the program's other source files.
  CHECK(ps::detail::named_stream<true>(null) == cudaStreamPerThread);
  const ps::cuda_stream stream{0};
  CHECK(ps::detail::named_stream<true>(stream.get()) == stream.get());
}

TEST_CASE("a stream of the library does not wait for the default stream", "[cuda]") {
  fake_cuda::reset();
  const ps::cuda_stream stream{0};
  unsigned int flags = 0;
  REQUIRE(cudaStreamGetFlags(stream.get(), &flags) == cudaSuccess);
  CHECK(flags == cudaStreamNonBlocking);
}

TEST_CASE("transforms run at the highest priority", "[cuda][promise:bounded-2]") {
  const ps::cuda_device device{0};
  const auto with = [&](bool has_transform) {
    fake_cuda::reset();
    const auto stream = device.make_stream();
    ps::loader loader{digits_flow::digits{64}, ps::sequential{}, device, {.workers = 0}};
    const auto nothing = [](auto, auto, ps::cuda_stream_ref) {};
    if (has_transform) {
      const ps::transfer feed{loader, stream, ps::on_stream<digits_flow::record>(nothing)};
    } else {
      const ps::transfer feed{loader, stream};
    }
    return fake_cuda::stream_priorities();  // streams of the consumer, the transform and the copies
  };
  CHECK(with(false) == std::vector<int>{0, 0});
  CHECK(with(true) == std::vector<int>{0, -5, 0});
  int priority = 0;
  const auto urgent = device.make_stream(ps::stream_priority::highest);
  CHECK(cudaStreamGetPriority(urgent.get(), &priority) == cudaSuccess);
  CHECK(priority == -5);
}

TEST_CASE("making a stream for another device leaves the thread's device as it was", "[cuda]") {
  fake_cuda::reset({.devices = 2});
  const ps::cuda_stream stream{1};
  int current = -1;
  REQUIRE(cudaGetDevice(&current) == cudaSuccess);
  CHECK(current == 0);
  CHECK_THROWS_AS(ps::cuda_device{0}.require_usable(stream), ps::stream_of_another_device);
  CHECK_NOTHROW(ps::cuda_device{1}.require_usable(stream));
}

TEST_CASE("the device of a stream is found with a driver older than the toolkit", "[cuda]") {
  const clean_fake until_the_end{{.devices = 2, .driver_version = 12040}};
  const ps::cuda_stream stream{1};
  CHECK_THROWS_AS(ps::cuda_device{0}.require_usable(stream), ps::stream_of_another_device);
  CHECK_NOTHROW(ps::cuda_device{1}.require_usable(stream));
  CHECK(cudaPeekAtLastError() == cudaSuccess);
}

TEST_CASE("a stream reports its device and waits for its work on any current device", "[cuda]") {
  const int driver = GENERATE(12040, 13000);
  fake_cuda::reset({.devices = 3, .driver_version = driver});
  {
    const ps::cuda_stream stream{1};
    std::thread{[&] {
      CHECK(stream.device() == ps::cuda_device{1});
      CHECK(stream.is_complete());
      bool is_done = false;
      {
        const auto current = ps::cuda_device{1}.enter_scope();
        fake_cuda::launch(stream.get(), [&] { is_done = true; });
      }
      CHECK_FALSE(stream.is_complete());
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      stream.synchronize();
      CHECK(is_done);
      CHECK(stream.is_complete());
    }}.join();
    CHECK(fake_cuda::contexts(0) == 0);
    const auto current = ps::cuda_device{2}.enter_scope();
    CHECK(ps::cuda_stream_ref{stream}.device().ordinal() == 1);
    CHECK(ps::cuda_stream_ref{cudaStreamLegacy}.device().ordinal() == 2);
  }
  CHECK(fake_cuda::contexts(0) == 0);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("the device of a stream can be queried while the thread captures another stream",
          "[cuda]") {
  const clean_fake until_the_end;
  const ps::cuda_device device{0};
  const ps::cuda_stream captured{0};
  const ps::cuda_stream stream{0};
  REQUIRE(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(ps::cuda_stream_ref{stream}.device() == device);
  CHECK_NOTHROW(device.require_usable(stream));
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(captured.get(), &graph) == cudaSuccess);
  const auto owned = ps::detail::cuda_graph::from_native_handle(graph);
}

TEST_CASE("a stream under capture is not waited for, and its capture continues", "[cuda]") {
  const clean_fake until_the_end;
  const ps::cuda_stream stream{0};
  REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK_THROWS_AS(stream.synchronize(), ps::capture_in_progress);
  CHECK_THROWS_AS(stream.is_complete(), ps::capture_in_progress);
  CHECK(stream.device().ordinal() == 0);
  CHECK_THROWS_AS(ps::cuda_stream_ref{stream}.device(), ps::capture_in_progress);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  const auto owned = ps::detail::cuda_graph::from_native_handle(graph);
}
