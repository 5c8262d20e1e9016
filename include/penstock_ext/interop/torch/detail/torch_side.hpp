// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <c10/core/Device.h>

#include <penstock_ext/interop/detail/host_wait.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

template <class>
inline constexpr bool is_shared_batch = false;
template <class Batch>
inline constexpr bool is_shared_batch<shared_batch<Batch>> = true;

/// A lease of memory on a GPU, which is one of several and has a number.
template <class Batch>
concept gpu_lease = requires(const Batch& batch) {
  batch.stream();
  batch.device().ordinal();
};

/// Where tensors over a batch lie, and what orders the work on them: here in host memory, where
/// libtorch computes on the calling thread. `penstock_ext/interop/torch/torch_cuda.hpp` specialises
/// it for GPUs.
template <class Batch>
struct torch_side {
  /// Returns after the batch's copy, with the device of its tensors. The end of the lease needs no
  /// such wait: when the last tensor goes, libtorch has done its work.
  static at::Device order([[maybe_unused]] const shared_batch<Batch>& batch) {
    static_assert(!gpu_lease<Batch>,
                  "penstock::torch_tensors: the batch is in a GPU's memory: include "
                  "<penstock_ext/interop/torch/torch_cuda.hpp>, which needs a libtorch with CUDA");
    wait_on_host(batch);
    return at::kCPU;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
