// SPDX-License-Identifier: BSL-1.0
// Tests the unchanged kernels of `on_device` on the fake CUDA runtime: ragged lengths, any order of
// blocks and threads, and no writes outside the fields.
#include <penstock/cuda/on_device.cuh>

#include <cstddef>
#include <cstdint>
#include <thread>

#include "fake_cuda/fake_cuda.hpp"
#include "kernels/passage.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using fake_cuda::order;
using passages::colour;
using passages::colour_at;
using passages::passage;
using passages::pixel;

order one_order() { return GENERATE(order::forwards, order::backwards, order::seeded); }

template <class T>
struct as {
  [[nodiscard]] __device__ T operator()(std::uint8_t x) const { return static_cast<T>(x); }
};
struct grey {
  [[nodiscard]] __device__ float operator()(colour c) const {
    return static_cast<float>(c.red) + static_cast<float>(c.blue) / 256.0F;
  }
};

}  // namespace

TEST_CASE(
    "fields of any length are transformed completely, in every order, with no byte beside them",
    "[kernels][promise:exact-19]") {
  fake_cuda::reset({.seed = 11, .kernels = one_order()});
  const auto function = ps::normalised({.mean = 0.1307, .deviation = 0.3081});
  const auto image_alone = ps::on_device<"image">(function);
  // Lengths around packs of 4 and 16 elements, and around blocks of 1,024 and 4,096 elements.
  for (const std::size_t length : {1U, 3U, 4U, 15U, 16U, 17U, 255U, 784U, 1023U, 1025U, 4099U}) {
    for (const std::size_t samples : {1U, 7U, 64U}) {
      CAPTURE(length, samples);
      const passage one{length, samples, image_alone};
      CHECK(one.wrong<"image">([&](std::size_t i) { return function(pixel(i)); }) == 0);
      CHECK(one.wrong<"colour">(colour_at) == 0);
      CHECK(one.wrong_copies() == 0);
      CHECK(one.spoilt() == 0);
    }
  }
  CHECK(fake_cuda::expect_clean());
}

TEMPLATE_TEST_CASE("elements may become wider or stay as wide, and several fields change at once",
                   "[kernels][promise:exact-19]", std::uint8_t, std::uint16_t, double) {
  fake_cuda::reset({.seed = 12, .kernels = one_order()});
  for (const std::size_t length : {1U, 333U, 2049U}) {
    CAPTURE(length);
    const passage two{length, 5, ps::on_device<"image", "colour">(as<TestType>{}, grey{})};
    CHECK(two.template wrong<"image">(
              [](std::size_t i) { return static_cast<TestType>(pixel(i)); }) == 0);
    CHECK(two.template wrong<"colour">([](std::size_t i) { return grey{}(colour_at(i)); }) == 0);
    CHECK(two.wrong_copies() == 0);
    CHECK(two.spoilt() == 0);
  }
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("kernels are loaded while another thread captures a graph", "[kernels]") {
  fake_cuda::reset();
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  std::thread{[] {
    const auto transform = ps::on_device<"image">(as<float>{});
    CHECK_NOTHROW(transform.prepare(ps::cuda_device{0},
                                    ps::batch_layout<passages::raw>{{{7}, {}, {}, {}}, 4}));
  }}.join();
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("a large batch is transformed whole, four packs a thread",
          "[kernels][promise:exact-19]") {
  fake_cuda::reset({.seed = 13, .kernels = order::seeded});
  const passage one{70'001, 64, ps::on_device<"image">(as<float>{})};
  CHECK(one.wrong<"image">([](std::size_t i) { return static_cast<float>(pixel(i)); }) == 0);
  CHECK(one.wrong_copies() == 0);
  CHECK(one.spoilt() == 0);
  CHECK(fake_cuda::expect_clean());
}
