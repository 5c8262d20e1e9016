// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime.h>

/// Kernels that nvcc would accept, some of them intentionally wrong. kernel_test.cpp runs them on
/// the fake CUDA runtime.
namespace kernels {

/// Writes the coordinates of each thread: x + 10 y + 100 z of the thread and of the block.
__global__ void places(unsigned* threads, unsigned* blocks, unsigned* order) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
  threads[i] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z;
  blocks[i] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z;
  order[++order[0]] = i;
}

inline constexpr unsigned tile = 64;

/// Reverses each tile, with one block per tile.
__global__ void __launch_bounds__(tile) turn(const float* from, float* to) {
  __shared__ float values[tile];
  values[threadIdx.x] = from[blockIdx.x * tile + threadIdx.x];
  __syncthreads();
  to[blockIdx.x * tile + threadIdx.x] = values[tile - 1 - threadIdx.x];
}

/// Reverses each tile incorrectly: some threads read values that other threads have not written
/// yet.
__global__ void turn_at_once(const float* from, float* to) {
  __shared__ float values[tile];
  values[threadIdx.x] = from[blockIdx.x * tile + threadIdx.x];
  to[blockIdx.x * tile + threadIdx.x] = values[tile - 1 - threadIdx.x];
}

/// Sums `tile` values by repeated halving. Each type T has its own shared memory.
template <class T>
__global__ void sum(const T* from, T* to) {
  __shared__ T values[tile];
  __shared__ T total;
  values[threadIdx.x] = from[threadIdx.x];
  for (unsigned half = tile / 2; half != 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  if (threadIdx.x == 0) total = values[0];
  __syncthreads();
  to[threadIdx.x] = total;
}

/// Reads unwritten shared memory.
__global__ void look_at_shared(unsigned* to) {
  __shared__ unsigned value;
  to[blockIdx.x] = value;
  value = 7;
}

__global__ void meet_apart() {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void meet_without_some() {
  if (threadIdx.x >= 3) return;
  __syncthreads();
}

__global__ void write_far(unsigned* to, unsigned places) { to[blockDim.x + places] = 1; }
__global__ void write_past_shared() {
  __shared__ float values[tile];
  float* end = values + tile;
  end[threadIdx.x] = 0.0F;
}
__global__ void declare_too_much(unsigned* to) {
  __shared__ unsigned values[13000];
  to[0] = values[0];
}
__global__ void do_nothing() {}

// Launches the kernel with <<<>>>.
inline void launch_turn(unsigned blocks, const float* from, float* to, cudaStream_t stream) {
  turn<<<blocks, tile, 0, stream>>>(from, to);
}
template <class T>
void launch_sum(const T* from, T* to) {
  sum<<<1, tile>>>(from, to);
}

}  // namespace kernels
