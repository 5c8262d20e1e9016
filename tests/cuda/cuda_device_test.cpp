// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <functional>
#include <utility>

#include <penstock/cuda/cuda_device.hpp>

#include "contract/device_contract.hpp"
#include "cuda/seeds.hpp"
#include "fake_cuda/fake_cuda.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

struct cuda_subject {
  using device_type = ps::cuda_device;
  [[nodiscard]] ps::cuda_device device() const { return ps::cuda_device{0}; }
  void launch(ps::cuda_stream_ref stream, std::function<void()> work) const {
    fake_cuda::launch(stream.get(), std::move(work));
  }
};

void run_contract(fake_cuda::config config) {
  fake_cuda::reset(config);
  contract::run_all(cuda_subject{});
}

void run_contract_by_seeds(std::uint64_t part) {
  contract::turns = 3;
  for (std::uint64_t seed = part; seed < seed_count(); seed += 4) {
    for (const auto& one : contract::checks<cuda_subject>) {
      INFO("seed " << seed << ": " << one.name);
      fake_cuda::reset({.policy = fake_cuda::policy::random,
                        .seed = seed,
                        .absurd_sizes_are_invalid = seed % 2 == 1});
      one.run(cuda_subject{});
      CHECK(fake_cuda::expect_clean());
    }
  }
}

}  // namespace

TEST_CASE("the CUDA device keeps the contract of devices when work runs late",
          "[cuda][promise:race-free-4]") {
  run_contract({.policy = fake_cuda::policy::late});
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("the CUDA device keeps the contract of devices when work runs early",
          "[cuda][promise:race-free-4]") {
  run_contract({.policy = fake_cuda::policy::early});
  CHECK(fake_cuda::expect_clean());
}

// Runs the whole suite for each seed, in four parts that CTest runs in parallel.
TEST_CASE("the CUDA device keeps the contract of devices in random order, first seeds",
          "[cuda][promise:race-free-4]") {
  run_contract_by_seeds(0);
}
TEST_CASE("the CUDA device keeps the contract of devices in random order, second seeds", "[cuda]") {
  run_contract_by_seeds(1);
}
TEST_CASE("the CUDA device keeps the contract of devices in random order, third seeds", "[cuda]") {
  run_contract_by_seeds(2);
}
TEST_CASE("the CUDA device keeps the contract of devices in random order, last seeds", "[cuda]") {
  run_contract_by_seeds(3);
}

TEST_CASE("a size above the address space throws out_of_memory for any driver result", "[cuda]") {
  const auto code = GENERATE(cudaErrorMemoryAllocation, cudaErrorInvalidValue);
  fake_cuda::reset();
  const ps::cuda_device device;
  fake_cuda::fail_call_of("cudaMalloc", 0, code);
  CHECK_THROWS_AS(device.allocate(std::size_t{1} << 60), ps::out_of_memory);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  fake_cuda::fail_call_of("cudaMalloc", 0, cudaErrorInvalidValue);
  CHECK_THROWS_AS(device.allocate(4096), ps::cuda_error);
}
