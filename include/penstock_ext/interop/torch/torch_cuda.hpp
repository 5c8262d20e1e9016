// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <penstock_ext/interop/torch/torch.hpp>

/// @file
/// libtorch tensors that reference batches in GPU memory (`torch_tensors`, `torch_tensor`).
/// Requires libtorch with CUDA. In CMake, call `find_package(Torch)` before finding penstock.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Establishes stream order on a GPU. The consumer is libtorch's current stream for this thread and
/// the batch device. That stream waits for the batch copy and records the slot release. For work on
/// other streams, call `shared_batch::also_used_on`. `record_stream` only supports libtorch's own
/// memory. Such a stream must outlive the tensors, as libtorch's streams do.
template <class Batch>
  requires gpu_lease<Batch>
struct torch_side<Batch> {
  /// Orders the current stream after the batch copy, and the reuse of the slot after the current
  /// stream. Does not block. Allocates an event at the first use of each slot. Throws `cuda_error`
  /// if a CUDA call fails.
  static at::Device order(const shared_batch<Batch>& batch) {
    const auto index = static_cast<c10::DeviceIndex>(batch.device().ordinal());
    batch.also_used_on(typename Batch::stream_ref{c10::cuda::getCurrentCUDAStream(index).stream()});
    return {at::kCUDA, index};
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
