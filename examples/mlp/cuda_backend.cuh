// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/system/cuda/execution_policy.h>
#include <cub/device/device_reduce.cuh>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/step_graphs.hpp>

#include "backend.hpp"

namespace example {

/// Runs the network on a GPU, on one stream, with Thrust and CUB. After construction no function
/// waits or allocates. `cpu_backend` has the same members for the CPU.
class cuda_backend {
 public:
  using device_type = penstock::cuda_device;
  using step_graphs = penstock::step_graphs;
  /// The tile of a product: one element per thread, because such small matrices have few elements.
  static constexpr std::size_t tile_height = 1;
  static constexpr std::size_t tile_width = 1;

  /// Uses GPU 0 and makes it the current device of the thread.
  cuda_backend()
      : device_(0), stream_(made_stream(device_)), scratch_(device_, std::size_t{1} << 20) {}

  [[nodiscard]] const device_type& device() const { return device_; }
  [[nodiscard]] device_type::stream_ref stream() const { return stream_; }
  [[nodiscard]] static std::string name() {
    cudaDeviceProp found{};
    check(cudaGetDeviceProperties(&found, 0), "cudaGetDeviceProperties");
    return found.name;
  }
  static constexpr bool shares_cores = false;

  /// With this policy, Thrust enqueues work without waiting for it. The training loop waits.
  [[nodiscard]] auto policy() const { return thrust::cuda::par_nosync.on(stream_.get()); }

  template <class Function>
  void sum(std::size_t count, const Function& function, float* to) const {
    const auto values =
        thrust::make_transform_iterator(thrust::counting_iterator<std::size_t>{0}, function);
    const auto reduce = [&](void* scratch, std::size_t& bytes) {
      check(cub::DeviceReduce::Reduce(scratch, bytes, values, to, static_cast<std::int64_t>(count),
                                      thrust::plus<float>{}, 0.0F, stream_.get()),
            "cub::DeviceReduce::Reduce");
    };
    std::size_t bytes = 0;
    reduce(nullptr, bytes);  // queries the size of the scratch memory
    if (bytes > scratch_.size()) {
      throw std::logic_error("a sum of " + std::to_string(count) + " values needs " +
                             std::to_string(bytes) + " bytes of scratch memory");
    }
    reduce(scratch_.data(), bytes);
  }

 private:
  static void check(cudaError_t code, const char* call) {
    if (code != cudaSuccess) {
      throw std::runtime_error(std::string{call} + " gave " + cudaGetErrorString(code));
    }
  }
  static penstock::cuda_stream made_stream(const device_type& device) {
    device.make_current();
    return device.make_stream();
  }

  device_type device_;
  penstock::cuda_stream stream_;
  device_array<std::byte, device_type> scratch_;
};

}  // namespace example
