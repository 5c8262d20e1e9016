// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include <penstock/device/cuda_device.hpp>

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

}  // namespace

TEST_CASE("the CUDA device keeps the contract of devices when work runs late", "[cuda]") {
  run_contract({.policy = fake_cuda::policy::late});
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("the CUDA device keeps the contract of devices when work runs early", "[cuda]") {
  run_contract({.policy = fake_cuda::policy::early});
  CHECK(fake_cuda::expect_clean());
}

TEST_CASE("the CUDA device keeps the contract of devices in random order", "[cuda]") {
  const std::span checks{contract::checks<cuda_subject>};
  for (std::uint64_t seed = 0; seed < seed_count; ++seed) {
    fake_cuda::reset({.policy = fake_cuda::policy::random, .seed = seed});
    const auto& one = checks[seed % checks.size()];
    INFO("seed " << seed << ": " << one.name);
    one.run(cuda_subject{});
    CHECK(fake_cuda::expect_clean());
  }
}
