// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "fake_cuda/fake_cuda.hpp"

// Replaces CUB. Runs host code on the stream instead of the CUB kernels.
namespace cub {

struct DeviceReduce {
  /// Computes *to = init + values[0] + values[1] + ..., with `sum` for the additions.
  template <class Values, class Result, class Sum, class Init>
  static cudaError_t Reduce(void* scratch, std::size_t& bytes, Values values, Result* to,
                            std::int64_t count, Sum sum, Init init, cudaStream_t stream) {
    bytes = 256;
    if (scratch == nullptr) return cudaSuccess;
    const auto work = [=] {
      Init found = init;
      for (std::int64_t i = 0; i < count; ++i) found = sum(found, values[i]);
      *to = found;
    };
    fake_cuda::launch(stream, work, {to, scratch});
    return cudaSuccess;
  }

  template <class Values, class Result, class Sum, class Function, class Init>
  static cudaError_t TransformReduce(void* scratch, std::size_t& bytes, Values values, Result* to,
                                     std::int64_t count, Sum sum, Function function, Init init,
                                     cudaStream_t stream) {
    struct transformed {
      Values values;
      Function function;
      auto operator[](std::int64_t i) const { return function(values[i]); }
    };
    return Reduce(scratch, bytes, transformed{values, function}, to, count, sum, init, stream);
  }
};

}  // namespace cub
