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

#include "backend.hpp"

namespace example {

/// Where the network computes: a GPU, all of it on one stream, by Thrust and CUB. Once it is made,
/// nothing here waits or allocates. `cpu_backend` is the same without a GPU.
class cuda_backend {
 public:
  using device_type = penstock::cuda_device;
  /// Of a product: a thread an element. Such small matrices have too few for more.
  static constexpr std::size_t tile_height = 1;
  static constexpr std::size_t tile_width = 1;

  /// Works on GPU 0, and makes it the thread's device.
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

  /// Enqueues, and leaves the waiting to the loop.
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
    reduce(nullptr, bytes);  // asks how much scratch memory it takes
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
