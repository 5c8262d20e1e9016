// SPDX-License-Identifier: BSL-1.0
// A user's test of CUDA code, using the fake CUDA runtime.
#include <cuda_runtime_api.h>

#include <cstring>

#include <fake_cuda/fake_cuda.hpp>

int main() {
  fake_cuda::reset({.policy = fake_cuda::policy::late});
  cudaStream_t stream = nullptr;
  void* device = nullptr;
  void* host = nullptr;
  bool right = false;
  cudaStreamCreate(&stream);
  cudaMalloc(&device, 64);
  cudaHostAlloc(&host, 64, cudaHostAllocDefault);
  std::memset(host, 1, 64);
  cudaMemcpyAsync(device, host, 64, cudaMemcpyDefault, stream);
  fake_cuda::launch(stream, [&] { right = *static_cast<unsigned char*>(device) == 1; }, {device});
  cudaStreamSynchronize(stream);
  cudaFreeHost(host);
  cudaFree(device);
  cudaStreamDestroy(stream);
  return right && fake_cuda::expect_clean() ? 0 : 1;
}
