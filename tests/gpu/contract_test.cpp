// SPDX-License-Identifier: BSL-1.0
#include <functional>
#include <utility>

#include <penstock/cuda/cuda_device.hpp>

#include "contract/device_contract.hpp"
#include "gpu/kernels.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

struct gpu_subject {
  using device_type = ps::cuda_device;
  [[nodiscard]] ps::cuda_device device() const { return ps::cuda_device{0}; }
  void launch(ps::cuda_stream_ref stream, std::function<void()> work) const {
    gpu::launch(stream.get(), std::move(work));
  }
};

}  // namespace

TEST_CASE("a GPU keeps the contract of devices", "[gpu][promise:race-free-4]") {
  // Initializes the context in advance. The first launch of the contract tests would otherwise
  // initialize it and wait for a blocked stream.
  {
    const ps::cuda_device device;
    const auto stream = device.make_stream();
    gpu::launch(stream.get(), [] {});
    device.synchronize(ps::cuda_stream_ref{stream});
  }
  contract::run_all(gpu_subject{});
}
