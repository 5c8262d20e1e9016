#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "fake_cuda/fake_cuda.hpp"

// Replaces the CUDA system of Thrust. Runs host code on the stream instead of the Thrust kernels.
namespace thrust {

namespace cuda {

struct on_stream {
  cudaStream_t stream;
};
struct without_waiting {
  [[nodiscard]] on_stream on(cudaStream_t stream) const { return {stream}; }
};
inline constexpr without_waiting par_nosync;

}  // namespace cuda

template <class Iterator, class Function>
void for_each_n(const cuda::on_stream& policy, Iterator first, std::size_t count,
                Function function) {
  const auto work = [=] {
    for (std::size_t i = 0; i < count; ++i) function(*(first + static_cast<std::ptrdiff_t>(i)));
  };
  fake_cuda::launch(policy.stream, work);
}

}  // namespace thrust
