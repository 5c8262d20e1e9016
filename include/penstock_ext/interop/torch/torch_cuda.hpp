// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <c10/cuda/CUDAStream.h>

#include <penstock_ext/interop/torch/detail/torch_side.hpp>
#include <penstock_ext/interop/torch/torch.hpp>

/// @file
/// Tensors of libtorch over batches in a GPU's memory: `torch_tensors`, `torch_tensor`. Needs a
/// libtorch with CUDA; CMake: `find_package(Torch)` before penstock is looked for.

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// On a GPU libtorch's current stream, of this thread and the batch's device, is the consumer: it
/// waits for the batch's copy, and the end of the lease is recorded on it. Work that another stream
/// does with the tensors is announced by `shared_batch::also_used_on`, not by `record_stream`,
/// which knows memory of libtorch's own alone. That stream must outlive the tensors; libtorch's do.
template <class Batch>
  requires gpu_lease<Batch>
struct torch_side<Batch> {
  /// Orders the current stream after the batch's copy, and the slot's reuse after the stream.
  /// Blocks nothing; allocates an event the first time in each slot. Throws `cuda_error`.
  static at::Device order(const shared_batch<Batch>& batch) {
    const auto index = static_cast<c10::DeviceIndex>(batch.device().ordinal());
    batch.also_used_on(typename Batch::stream_ref{c10::cuda::getCurrentCUDAStream(index).stream()});
    return {at::kCUDA, index};
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
