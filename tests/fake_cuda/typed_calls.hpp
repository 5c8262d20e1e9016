// SPDX-License-Identifier: BSL-1.0
#pragma once

// The overloads that <cuda_runtime.h> adds to runtime functions: typed pointers, flags and
// launches. Programs include <cuda_runtime.h> from the toolkit, from as_cxx/ or from standin/.
#include <cuda_runtime_api.h>

#include <cstddef>

template <class T>
cudaError_t cudaMalloc(T** data, std::size_t bytes) {
  return cudaMalloc(static_cast<void**>(static_cast<void*>(data)), bytes);
}

template <class T>
cudaError_t cudaHostAlloc(T** data, std::size_t bytes, unsigned int flags) {
  return cudaHostAlloc(static_cast<void**>(static_cast<void*>(data)), bytes, flags);
}

inline cudaError_t cudaMallocHost(void** data, std::size_t bytes, unsigned int flags) {
  return cudaHostAlloc(data, bytes, flags);
}

template <class T>
cudaError_t cudaMallocHost(T** data, std::size_t bytes, unsigned int flags = 0) {
  return cudaMallocHost(static_cast<void**>(static_cast<void*>(data)), bytes, flags);
}

inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) {
  return cudaEventCreateWithFlags(event, flags);
}

inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                        cudaGraphNode_t* /*error_node*/, char* /*log*/,
                                        std::size_t /*log_size*/) {
  return cudaGraphInstantiate(executable, graph, 0ULL);
}
