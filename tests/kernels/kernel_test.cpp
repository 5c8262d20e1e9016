// SPDX-License-Identifier: BSL-1.0
// Tests kernels on the fake CUDA runtime. Kernels must compute the same results as on a GPU, and
// errors in kernels must be detected.
#include "translated/kernels.cuh"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace {

using fake_cuda::order;

/// An array of `size` elements in device memory, with its own stream.
template <class T>
class on_device {
 public:
  explicit on_device(std::size_t size, T value = {}) : host_(size, value) {
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, size * sizeof(T)) == cudaSuccess);
    data = static_cast<T*>(memory);
    upload();
  }
  on_device(on_device&&) = delete;
  ~on_device() {
    cudaFree(data);
    cudaStreamDestroy(stream);
  }

  void upload() {
    REQUIRE(cudaMemcpyAsync(data, host_.data(), host_.size() * sizeof(T), cudaMemcpyDefault,
                            stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }
  [[nodiscard]] const std::vector<T>& values() {
    REQUIRE(cudaMemcpyAsync(host_.data(), data, host_.size() * sizeof(T), cudaMemcpyDefault,
                            stream) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    return host_;
  }
  template <class... Parameters, class... Arguments>
  cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                     const Arguments&... arguments) const {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
  }

  T* data = nullptr;
  cudaStream_t stream = nullptr;

 private:
  std::vector<T> host_;
};

order any_order() { return GENERATE(order::forwards, order::backwards, order::seeded); }

bool has_finding(const std::string& kind) {
  const auto found = fake_cuda::findings();
  return std::any_of(found.begin(), found.end(), [&](const auto& one) { return one.kind == kind; });
}

/// Three tiles of the values 0 to 191.
class tiles : public on_device<float> {
 public:
  static constexpr std::size_t size = std::size_t{3} * kernels::tile;
  tiles() : on_device(size), turned(size) {
    std::vector<float> numbers(size);
    for (std::size_t i = 0; i < size; ++i) numbers[i] = static_cast<float>(i);
    REQUIRE(cudaMemcpy(data, numbers.data(), size * sizeof(float), cudaMemcpyDefault) ==
            cudaSuccess);
  }
  /// Returns the number of values in `turned` that are at the right position.
  [[nodiscard]] std::size_t right() {
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    std::size_t count = 0;
    const auto& found = turned.values();
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t tile = i / kernels::tile * kernels::tile;
      if (found[i] == static_cast<float>(tile + kernels::tile - 1 - i % kernels::tile)) ++count;
    }
    return count;
  }
  on_device<float> turned;
};

}  // namespace

TEST_CASE("every thread of every block runs once, and knows where it is", "[kernels]") {
  const order how = any_order();
  fake_cuda::reset({.seed = 3, .kernels = how});
  {
    const dim3 blocks{3, 2, 2};
    const dim3 threads{5, 3, 2};
    constexpr std::size_t all = std::size_t{3 * 2 * 2} * 5 * 3 * 2;
    on_device<unsigned> thread{all};
    on_device<unsigned> block{all};
    on_device<unsigned> ran{all + 1};
    REQUIRE(ran.launch(&kernels::places, blocks, threads, thread.data, block.data, ran.data) ==
            cudaSuccess);
    const auto turns = ran.values();
    for (std::size_t i = 0; i < all; ++i) {
      const std::size_t t = i % 30;
      const std::size_t b = i / 30;
      CHECK(thread.values()[i] == t % 5 + 10 * (t / 5 % 3) + 100 * (t / 15));
      CHECK(block.values()[i] == b % 3 + 10 * (b / 3 % 2) + 100 * (b / 6));
    }
    std::vector<unsigned> order(turns.begin() + 1, turns.end());
    CHECK(std::is_sorted(order.begin(), order.end()) == (how == order::forwards));
    CHECK(std::is_sorted(order.rbegin(), order.rend()) == (how == order::backwards));
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < all; ++i) CHECK(order[i] == i);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a kernel with a barrier is right in every order, without it, wrong in each",
          "[kernels]") {
  const order how = any_order();
  fake_cuda::reset({.kernels = how});
  {
    tiles of;
    REQUIRE(of.launch(&kernels::turn, 3, kernels::tile, of.data, of.turned.data) == cudaSuccess);
    CHECK(of.right() == tiles::size);
    CHECK(fake_cuda::kernels_run().kernels == 1);
    CHECK(fake_cuda::kernels_run().blocks == 3);
    CHECK(fake_cuda::kernels_run().barriers == 3);
    REQUIRE(of.launch(&kernels::turn_at_once, 3, kernels::tile, of.data, of.turned.data) ==
            cudaSuccess);
    CHECK(of.right() < tiles::size);
    CHECK(std::any_of(of.turned.values().begin(), of.turned.values().end(),
                      [](float value) { return std::isnan(value); }));
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("launches by <<<>>> run the same kernels, templates among them", "[kernels]") {
  fake_cuda::reset({.kernels = any_order()});
  {
    tiles of;
    kernels::launch_turn(3, of.data, of.turned.data, of.stream);
    CHECK(of.right() == tiles::size);
    on_device<double> from{kernels::tile, 0.5};
    on_device<double> to{kernels::tile};
    kernels::launch_sum(from.data, to.data);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(to.values() == std::vector<double>(kernels::tile, 32.0));
    CHECK(fake_cuda::calls_of("cudaLaunchKernel") == 2);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("cudaLaunchKernel takes a kernel by its type", "[kernels]") {
  fake_cuda::reset({.kernels = any_order()});
  {
    tiles of;
    const float* from = of.data;
    float* to = of.turned.data;
    void* arguments[] = {&from, &to};
    REQUIRE(cudaLaunchKernel(kernels::turn, 3, kernels::tile, arguments, 0, of.stream) ==
            cudaSuccess);
    CHECK(of.right() == tiles::size);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a graph repeats a kernel with the arguments that it was captured with", "[kernels]") {
  fake_cuda::reset();
  {
    tiles of;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaStreamBeginCapture(of.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    {
      const float* from = of.data;
      kernels::launch_turn(3, from, of.turned.data, of.stream);
      from = nullptr;
    }
    REQUIRE(cudaStreamEndCapture(of.stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
    CHECK(fake_cuda::kernels_run().kernels == 0);
    for (int i = 0; i < 3; ++i) {
      of.turned.upload();
      REQUIRE(cudaGraphLaunch(exec, of.stream) == cudaSuccess);
      CHECK(of.right() == tiles::size);
    }
    CHECK(fake_cuda::kernels_run().kernels == 3);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("each block begins with poison in its shared memory", "[kernels]") {
  fake_cuda::reset({.kernels = any_order()});
  on_device<unsigned> found{4};
  REQUIRE(found.launch(&kernels::look_at_shared, 4, 1, found.data) == cudaSuccess);
  CHECK(found.values() == std::vector<unsigned>(4, 0xFFFFFFFFU));
}

TEST_CASE("threads of a block that miss a barrier are a finding", "[kernels]") {
  fake_cuda::reset({.kernels = any_order()});
  const on_device<unsigned> memory{1};
  SECTION("because they wait at another barrier") {
    REQUIRE(memory.launch(&kernels::meet_apart, 1, 4) == cudaSuccess);
  }
  SECTION("because they have returned") {
    REQUIRE(memory.launch(&kernels::meet_without_some, 1, 4) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(memory.stream) == cudaSuccess);
  REQUIRE(fake_cuda::findings().size() == 1);
  CHECK(fake_cuda::findings()[0].kind == "barrier");
  CHECK(fake_cuda::findings()[0].text.find("kernels.cuh:") != std::string::npos);
}

TEST_CASE("a kernel's write outside its memory is a finding", "[kernels]") {
  fake_cuda::reset();
  const on_device<unsigned> memory{8};
  SECTION("after a block of device memory") {
    REQUIRE(memory.launch(&kernels::write_far, 1, 1, memory.data, 7) == cudaSuccess);
  }
  SECTION("before a block of device memory") {
    REQUIRE(memory.launch(&kernels::write_far, 1, 1, memory.data - 2, 0) == cudaSuccess);
  }
  SECTION("after a shared variable") {
    REQUIRE(memory.launch(&kernels::write_past_shared, 1, 8) == cudaSuccess);
  }
  REQUIRE(cudaStreamSynchronize(memory.stream) == cudaSuccess);
  CHECK(has_finding("out of bounds"));
}

TEST_CASE("a launch that no GPU takes is rejected", "[kernels]") {
  fake_cuda::reset();
  on_device<unsigned> memory{1};
  CHECK(memory.launch(&kernels::do_nothing, 0, 1) == cudaErrorInvalidConfiguration);
  CHECK(memory.launch(&kernels::do_nothing, 1, 1025) == cudaErrorInvalidConfiguration);
  CHECK(memory.launch(&kernels::do_nothing, 1, dim3{64, 4, 8}) == cudaErrorInvalidConfiguration);
  CHECK(memory.launch(&kernels::do_nothing, dim3{1, 65536}, 1) == cudaErrorInvalidConfiguration);
  CHECK(cudaLaunchKernel(&memory, 1, 1, nullptr, 0, memory.stream) ==
        cudaErrorInvalidDeviceFunction);
  CHECK(memory.launch(&kernels::do_nothing, 1, 1024) == cudaSuccess);
  REQUIRE(memory.launch(&kernels::declare_too_much, 1, 1, memory.data) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(memory.stream) == cudaSuccess);
  CHECK(has_finding("shared memory"));
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("memory that a queued kernel takes as an argument is in use", "[kernels]") {
  fake_cuda::reset();
  tiles of;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, tiles::size * sizeof(float)) == cudaSuccess);
  kernels::launch_turn(3, of.data, static_cast<float*>(memory), of.stream);
  cudaFree(memory);
  CHECK(has_finding("freed under work"));
}
