// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "fake_cuda.hpp"

/// Functions that launch kernels compiled as C++, and functions that such kernels call. Tests do
/// not call them directly: they include <cuda_runtime.h>, whose kernel keywords expand to these
/// functions.
namespace fake_cuda {

namespace detail {

/// Waits until all threads of the block have reached this barrier.
void meet(const char* file, unsigned line);

/// Returns the block's shared variable for this source location. The variable is poisoned and
/// surrounded by guard bytes.
[[nodiscard]] void* shared_memory(std::size_t bytes, std::size_t alignment, const char* file,
                                  unsigned line);

/// Converts the arguments of a kernel from the addresses passed by a launch.
struct kernel_type {
  std::size_t bytes = 0;  ///< total size of the arguments
  std::shared_ptr<void> (*copy)(void** arguments) = nullptr;
  void (*call)(const void* kernel, const void* arguments) = nullptr;
};

/// Registers `kernel` for launching. With nvcc, kernels are registered at program start.
void know(const void* kernel, const kernel_type& type);

template <class... Parameters>
[[nodiscard]] const void* known(void (*kernel)(Parameters...)) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "the arguments of a kernel travel as bytes");
  using arguments = std::tuple<Parameters...>;
  kernel_type type;
  type.bytes = sizeof(arguments);
  type.copy = [](void** from) -> std::shared_ptr<void> {
    return [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      static_cast<void>(from);  // unused if the kernel has no parameters
      return std::make_shared<arguments>(*static_cast<Parameters*>(from[Is])...);
    }(std::index_sequence_for<Parameters...>{});
  };
  type.call = [](const void* function, const void* all) {
    const auto* values = static_cast<const arguments*>(all);
    std::apply(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(function)), *values);
  };
  const void* address = reinterpret_cast<const void*>(kernel);
  know(address, type);
  return address;
}

/// Calls a kernel by name, for `launcher`. A separate function deduces the arguments of a kernel
/// template.
template <class Call, class... Arguments>
void named_kernel(Arguments... arguments) {
  Call{}(arguments...);
}

/// The equivalent of `kernel<<<blocks, threads, shared, stream>>>`.
template <class Call>
struct launcher {
  dim3 blocks;
  dim3 threads;
  std::size_t shared;
  cudaStream_t stream;

  template <class... Arguments>
  void operator()(Arguments... arguments) const {
    void* addresses[] = {&arguments..., nullptr};
    // As with <<<>>>, the program gets an error from cudaGetLastError.
    static_cast<void>(cudaLaunchKernel(known(&named_kernel<Call, Arguments...>), blocks, threads,
                                       addresses, shared, stream));
  }
};

}  // namespace detail

/// Replaces `kernel<<<blocks, threads>>>` in the output of `fake_cuda_translate` (CMake).
template <class Call>
[[nodiscard]] detail::launcher<Call> configured(Call, dim3 blocks, dim3 threads,
                                                std::size_t shared = 0,
                                                cudaStream_t stream = nullptr) {
  return {blocks, threads, shared, stream};
}

/// Replaces `__shared__ T name;` in the output of `fake_cuda_translate`.
template <class T>
[[nodiscard]] T& shared(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  static_assert(std::is_trivially_copyable_v<T>, "shared memory is not constructed");
  return *static_cast<T*>(detail::shared_memory(sizeof(T), alignof(T), file, line));
}

}  // namespace fake_cuda
