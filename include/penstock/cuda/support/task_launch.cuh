// SPDX-License-Identifier: BSL-1.0
#pragma once

/// Launches the tasks for all fields of a batch. Requires nvcc.

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/cuda/detail/transform_kernel.cuh>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Returns the tasks of all fields as a single kernel argument.
template <std::size_t... Is, class... Tasks>
[[nodiscard]] auto listed_tasks(const Tasks&... tasks) {
  return task_list<std::index_sequence<Is...>, Tasks...>{{tasks}...};
}

/// Loads the kernels immediately, because loading at the first launch would wait for the device.
template <class Tasks>
void load_tasks(const cuda_device& device) {
  const scoped_device current{device.ordinal()};
  const scoped_relaxed_capture relaxed;
  const auto look_at = [](auto* kernel) {
    cuda_call("cudaFuncGetAttributes", [&] {
      cudaFuncAttributes attributes{};
      return cudaFuncGetAttributes(&attributes, kernel);
    });
  };
  look_at(&transform_fields<1, Tasks>);
  look_at(&transform_fields<4, Tasks>);
}

/// Launches the tasks with `PerThread` packs per thread.
template <unsigned PerThread, class Tasks>
void launch_tasks_by(Tasks& tasks, cuda_stream_ref stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = tasks.template place<PerThread>();
  if (config.gridDim.x == 0) return;  // All samples were skipped, and CUDA rejects an empty grid.
  config.blockDim = transform_threads;
  config.stream = stream.get();
  cuda_call("cudaLaunchKernelEx", [&] {
    return cudaLaunchKernelEx(&config, &transform_fields<PerThread, Tasks>, tasks);
  });
}

/// Queues one launch for all tasks on the current device. Throws `cuda_error` or a derived type.
template <class Tasks>
void launch_tasks(Tasks& tasks, cuda_stream_ref stream) {
  // From this number of packs on, each thread transforms four packs. At this size, one pack per
  // thread would already fill the largest GPUs (2^18 threads), and more loads in flight per thread
  // hide more latency.
  constexpr std::size_t many_packs = std::size_t{1} << 20;
  if (tasks.packs() < many_packs) {
    launch_tasks_by<1>(tasks, stream);
  } else {
    launch_tasks_by<4>(tasks, stream);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
