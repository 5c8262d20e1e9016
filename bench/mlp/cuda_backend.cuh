// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/system/cuda/execution_policy.h>
#include <cub/device/device_reduce.cuh>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/step_graphs.hpp>

#include "cublas.hpp"
#include "device_array.hpp"
#include "fused.hpp"
#include "kernels.hpp"
#include "options.hpp"
#include "shape.hpp"

namespace mlp {

namespace cuda {

inline void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string{call} + " gave " + cublasGetStatusString(status));
}

/// Checks the runtime calls of this file, including launches.
inline void check(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  // Clears the error. Otherwise, the next call would report it as its own.
  static_cast<void>(cudaGetLastError());
  if (penstock::detail::is_sticky(code)) penstock::detail::throw_cuda_error(code, call);
  throw penstock::cuda_error(code, call,
                             std::string{call} + " gave " + cudaGetErrorName(code) + " (" +
                                 cudaGetErrorString(code) + ")");
}

/// Runs a kernel in phases; see `fused`.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run_phases(const Kernel kernel) {
  __shared__ typename Kernel::shared shared;
  typename Kernel::local local;
  const unsigned phases = kernel.phases(blockIdx.x);
  for (unsigned p = 0; p < phases; ++p) {
    kernel.phase(p, blockIdx.x, threadIdx.x, shared, local);
    __syncthreads();
  }
}

/// Gathers rows, with one block per row.
template <class T>
__global__ void gather(unsigned length, const std::uint64_t* order, const kernel::step_state* state,
                       std::uint64_t capacity, const T* from, T* to) {
  const std::uint64_t place = kernel::coming_place(*state, gridDim.x, capacity);
  const T* row = from + order[place + blockIdx.x] * length;
  for (unsigned i = threadIdx.x; i < length; i += blockDim.x) {
    to[std::size_t{blockIdx.x} * length + i] = row[i];
  }
}

/// Gathers rows that consist of a single element.
template <class T>
__global__ void gather_single(unsigned count, const std::uint64_t* order,
                              const kernel::step_state* state, std::uint64_t capacity,
                              const T* from, T* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  to[i] = from[order[kernel::coming_place(*state, count, capacity) + i]];
}

struct destroy_blas {
  void operator()(cublasHandle_t handle) const noexcept { cublasDestroy(handle); }
};
using blas_handle = std::unique_ptr<cublasContext, destroy_blas>;

[[nodiscard]] inline blas_handle make_blas() {
  if (const auto reason = why_no_cublas()) {
    throw std::runtime_error("no cuBLAS, which all but the fused kernels need: " + *reason);
  }
  cublasHandle_t handle = nullptr;
  check(cublasCreate(&handle), "cublasCreate");
  blas_handle owner{handle};
  // disables TF32, so that all products use FP32
  check(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH), "cublasSetMathMode");
  return owner;
}

/// The resources of the steps on a device: cuBLAS (except with fused kernels), workspaces for
/// cuBLAS and CUB, and the graphs. Everything is allocated once. Not thread-safe.
class toolbox {
 public:
  toolbox(const penstock::cuda_device& device, kernel_choice kernels)
      : scratch(device, std::size_t{4} << 20), graphs(device) {
    if (kernels == kernel_choice::fused) return;
    workspace_.emplace(device, std::size_t{32} << 20);
    blas_ = make_blas();
  }

  /// Returns cuBLAS for calls on `stream`.
  [[nodiscard]] cublasHandle_t blas(penstock::cuda_stream_ref stream) {
    if (blas_stream_ != stream.get()) {
      check(cublasSetStream(blas_.get(), stream.get()), "cublasSetStream");
      // Setting the stream has replaced the workspace with one that cuBLAS allocates. A capture
      // cannot allocate, and the choice of algorithms depends on the workspace size.
      check(cublasSetWorkspace(blas_.get(), workspace_->data(), workspace_->size()),
            "cublasSetWorkspace");
      blas_stream_ = stream.get();
    }
    return blas_.get();
  }

  device_array<std::byte, penstock::cuda_device> scratch;
  penstock::step_graphs graphs;

 private:
  std::optional<device_array<std::byte, penstock::cuda_device>> workspace_;
  blas_handle blas_;  // destroyed before its workspace
  cudaStream_t blas_stream_ = nullptr;
};

}  // namespace cuda

/// The operations of the network on a GPU, all on one stream. `host_backend` lists the operations.
class cuda_context {
 public:
  cuda_context(penstock::cuda_stream_ref stream, kernel_choice kernels, cuda::toolbox& tools)
      : stream_(stream), kernels_(kernels), tools_(&tools) {}

  template <class Kernel>
  void each(std::size_t count, const Kernel& kernel) const {
    thrust::for_each_n(thrust::cuda::par_nosync.on(stream_.get()),
                       thrust::counting_iterator<std::size_t>{0}, count, kernel);
  }

  template <class Function, class Sum>
  void sum(std::size_t count, const Function& function, Sum* to) const {
    // Does not use DeviceReduce::TransformReduce, which CUDA 12.4 does not have.
    const auto values =
        thrust::make_transform_iterator(thrust::counting_iterator<std::size_t>{0}, function);
    const auto reduce = [&](void* scratch, std::size_t& bytes) {
      cuda::check(
          cub::DeviceReduce::Reduce(scratch, bytes, values, to, static_cast<std::int64_t>(count),
                                    thrust::plus<Sum>{}, Sum{}, stream_.get()),
          "cub::DeviceReduce::Reduce");
    };
    std::size_t bytes = 0;
    reduce(nullptr, bytes);
    if (bytes > tools_->scratch.size()) {
      throw std::logic_error("a sum needs " + std::to_string(bytes) + " bytes of scratch memory");
    }
    reduce(tools_->scratch.data(), bytes);
  }

  template <transpose A, transpose B>
  void multiply(std::size_t m, std::size_t n, std::size_t k, const float* a, const float* b,
                float* c) const {
    if constexpr (A == transpose::no && B == transpose::no) {
      if (kernels_ == kernel_choice::fused) {  // not part of a step: only `evaluate` calls it
        each(m * n, kernel::product{m, k, a, b, c});
        return;
      }
    }
    const float one = 1.0F;
    const float zero = 0.0F;
    constexpr auto operation = [](transpose how) {
      return how == transpose::no ? CUBLAS_OP_N : CUBLAS_OP_T;
    };
    cuda::check(cublasSgemm(tools_->blas(stream_), operation(A), operation(B), length(m), length(n),
                            length(k), &one, a, length(A == transpose::no ? m : k), b,
                            length(B == transpose::no ? k : n), &zero, c, length(m)),
                "cublasSgemm");
  }

  template <class T>
  void gather_rows(std::size_t count, std::size_t length, const std::uint64_t* order,
                   const kernel::step_state* state, std::uint64_t capacity, const T* from,
                   T* to) const {
    const auto rows = static_cast<unsigned>(count);
    constexpr unsigned threads = 128;
    // Rows and arrays are aligned to 16 bytes if the row length is a multiple of 16 bytes.
    if (length == 1) {
      cuda::gather_single<<<(rows + threads - 1) / threads, threads, 0, stream_.get()>>>(
          rows, order, state, capacity, from, to);
    } else if (length * sizeof(T) % sizeof(uint4) == 0) {
      cuda::gather<<<rows, threads, 0, stream_.get()>>>(
          static_cast<unsigned>(length * sizeof(T) / sizeof(uint4)), order, state, capacity,
          reinterpret_cast<const uint4*>(from), reinterpret_cast<uint4*>(to));
    } else {
      cuda::gather<<<rows, threads, 0, stream_.get()>>>(static_cast<unsigned>(length), order, state,
                                                        capacity, from, to);
    }
    cuda::check(cudaGetLastError(), "the launch of gather");
  }

  template <class Kernel>
  void run(const Kernel& kernel) const {
    cuda::run_phases<<<kernel.blocks(), Kernel::threads, 0, stream_.get()>>>(kernel);
    cuda::check(cudaGetLastError(), "the launch of a fused kernel");
  }

  template <class Pixel>
  void train_fused(const network_view& net, const Pixel* images, const std::uint8_t* labels,
                   std::size_t count) const {
    if (kernels_ == kernel_choice::cublas) {
      fused::train_by_products(*this, net, images, labels, count);
    } else {
      fused::train(*this, net, images, labels, count);
    }
  }

 private:
  [[nodiscard]] static int length(std::size_t n) { return static_cast<int>(n); }

  penstock::cuda_stream_ref stream_;
  kernel_choice kernels_;
  cuda::toolbox* tools_;
};

/// Runs the network on a GPU, with fused kernels alone or with cuBLAS in addition. Replays a graph
/// for each step, or launches kernel by kernel. Copies of a backend share their state.
class cuda_backend {
 public:
  using device_type = penstock::cuda_device;
  using stream_ref = device_type::stream_ref;
  using context_lost = penstock::cuda_context_lost;

  /// Creates a backend. `graph` selects replaying steps as graphs.
  cuda_backend(const device_type& device, kernel_choice kernels, bool graph)
      : kernels_(kernels),
        graph_(graph),
        tools_(std::make_shared<cuda::toolbox>(device, kernels)) {}

  [[nodiscard]] static penstock::cuda_stream make_stream(const device_type& device) {
    return device.make_stream();
  }

  template <class Work>
  void enqueue(stream_ref stream, const Work& work) const {
    work(cuda_context{stream, kernels_, *tools_});
  }

  template <class Work>
  void replay(std::size_t slot, std::size_t size, stream_ref stream, const Work& work) const {
    if (graph_) {
      tools_->graphs.launch(slot, size, stream, work);
    } else {
      work(stream);
    }
  }
  [[nodiscard]] static bool rehearses() { return true; }
  void forget() const { tools_->graphs.clear(); }

 private:
  kernel_choice kernels_;
  bool graph_;
  std::shared_ptr<cuda::toolbox> tools_;
};

}  // namespace mlp
