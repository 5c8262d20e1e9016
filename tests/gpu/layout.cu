// SPDX-License-Identifier: BSL-1.0
// Types that are passed to kernels by value. The name of each kernel contains the size of the type
// on the host, which layout.cmake compares with the size of the parameter in the PTX. A kernel
// would read wrong values if nvcc used different layouts on host and device.
#include <penstock/core/batch.hpp>
#include <penstock/core/tensor_view.hpp>

#include <cstddef>
#include <cstdint>

#include "gpu/kernels.hpp"

namespace ps = penstock;

template <std::size_t Bytes, class T>
__global__ void takes(T value, const void** out) {
  *out = value.data();
}

template <class First, class Second>
struct both {
  First first;
  Second second;
  __device__ const void* data() const { return second.data(); }
};

struct digested : gpu::ragged_batch {
  __device__ const void* data() const { return weights.data(); }
};

#define TAKES(...) template __global__ void takes<sizeof(__VA_ARGS__)>(__VA_ARGS__, const void**)

using bytes = ps::tensor_view<std::uint8_t, ps::dyn>;
using images = ps::tensor_view<const float, ps::dyn, 28, 28>;
using fixed = ps::tensor_view<const float, 28, 28>;
using ragged = ps::ragged_view<const std::uint16_t>;

TAKES(ps::tensor_view<double>);
TAKES(fixed);
TAKES(bytes);
TAKES(images);
TAKES(ps::tensor_view<float, ps::dyn, ps::dyn, 3>);
TAKES(ragged);
TAKES(both<fixed, bytes>);
TAKES(both<images, ragged>);
TAKES(both<both<fixed, fixed>, both<ragged, images>>);
TAKES(digested);
