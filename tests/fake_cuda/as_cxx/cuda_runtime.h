// SPDX-License-Identifier: BSL-1.0
#pragma once

// In the place of the CUDA toolkit's header of this name where kernels are compiled as C++, to run
// on the double: the words that nvcc knows by itself, and the launch functions that are templates.
// What no word of C++ can stand for, `__shared__` and `<<<>>>`, fake_cuda_translate.cmake rewrites.
#include <cuda_runtime_api.h>
#include <math.h>
#include <string.h>

#include <utility>

#include <fake_cuda/kernel.hpp>

// The toolkit's cuda_runtime_api.h has some of these for other compilers too.
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

// Variables and no macros: there are structures with members of these names.
extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;

inline void __syncthreads(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  fake_cuda::detail::meet(file, line);
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
