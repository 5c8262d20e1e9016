// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/cuda_context.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Whether a reference means the per-thread default stream.
[[nodiscard]] inline bool is_per_thread(cuda_stream_ref stream) noexcept {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  if (stream.get() == nullptr) return true;
#endif
  return stream.get() == cudaStreamPerThread;
}

/// Whether a reference means a default stream: that of the calling thread's device.
[[nodiscard]] inline bool is_default(cuda_stream_ref stream) noexcept {
  return stream.get() == nullptr || stream.get() == cudaStreamLegacy || is_per_thread(stream);
}

/// What a call for a stream of the device `ordinal` is made in: for a default stream the thread's
/// device has to be this one; for another stream any context will do.
class stream_scope {
 public:
  stream_scope(int ordinal, cuda_stream_ref stream) {
    if (is_default(stream)) {
      pushed_.make_current(ordinal);
    } else {
      pushed_.require_one(ordinal);
    }
  }

 private:
  context_push pushed_;
};

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
