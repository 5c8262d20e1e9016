// SPDX-License-Identifier: BSL-1.0
#pragma once

// Replaces the CUDA toolkit's header of this name when kernels are compiled as C++ for the fake
// CUDA runtime. Defines the keywords of nvcc and the launch functions that are templates.
// fake_cuda_translate.cmake rewrites `__shared__` and `<<<>>>`, which C++ cannot express.
#include <math.h>
#include <string.h>

#include <utility>

#include <fake_cuda/kernel.hpp>
#include <fake_cuda/typed_calls.hpp>

// The toolkit's cuda_runtime_api.h also defines some of these macros for other compilers.
#undef __host__
#undef __device__
#undef __global__
#undef __shared__
#undef __grid_constant__
#undef __forceinline__
#undef __launch_bounds__
#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

// Variables instead of macros, because some structs have members of these names.
extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;

inline void __syncthreads(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  fake_cuda::detail::meet(file, line);
}

template <class... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 blocks, dim3 threads,
                             void** arguments, size_t shared = 0, cudaStream_t stream = nullptr) {
  return cudaLaunchKernel(fake_cuda::detail::known(kernel), blocks, threads, arguments, shared,
                          stream);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const auto launch = [&](Parameters... converted) {
    void* addresses[] = {&converted..., nullptr};
    return cudaLaunchKernelExC(config, fake_cuda::detail::known(kernel), addresses);
  };
  return launch(static_cast<Parameters>(std::forward<Arguments>(arguments))...);
}

template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, fake_cuda::detail::known(kernel));
}
