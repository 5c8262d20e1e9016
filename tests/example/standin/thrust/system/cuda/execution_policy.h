// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <fake_cuda/fake_cuda.hpp>

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
void for_each_n(const cuda::on_stream& on, Iterator first, std::size_t count, Function function) {
  fake_cuda::launch(on.stream, [=] {
    for (std::size_t i = 0; i < count; ++i) function(*(first + static_cast<std::ptrdiff_t>(i)));
  });
}

template <class T, class Function>
void tabulate(const cuda::on_stream& on, T* first, T* last, Function function) {
  const auto work = [=] {
    for (T* to = first; to != last; ++to) *to = function(static_cast<std::size_t>(to - first));
  };
  fake_cuda::launch(on.stream, work, {first});
}

template <class From, class To, class Function>
void transform(const cuda::on_stream& on, const From* first, const From* last, To* to,
               Function function) {
  const auto work = [=, count = last - first] {
    for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = function(first[i]);
  };
  fake_cuda::launch(on.stream, work, {first, to});
}

template <class From, class Other, class To, class Function>
void transform(const cuda::on_stream& on, const From* first, const From* last, const Other* other,
               To* to, Function function) {
  const auto work = [=, count = last - first] {
    for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = function(first[i], other[i]);
  };
  fake_cuda::launch(on.stream, work, {first, other, to});
}

}  // namespace thrust
