// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/cuda/detail/cuda_context.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Whether a handle means the per-thread default stream.
[[nodiscard]] inline bool is_per_thread(cudaStream_t stream) noexcept {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  if (stream == nullptr) return true;
#endif
  return stream == cudaStreamPerThread;
}

/// Whether a handle means a default stream: that of the calling thread's device.
[[nodiscard]] inline bool is_default(cudaStream_t stream) noexcept {
  return stream == nullptr || stream == cudaStreamLegacy || is_per_thread(stream);
}

/// What a call for a stream is made in.
class stream_scope {
 public:
  /// For a stream of the device `ordinal`. For a default stream the thread's device has to be this
  /// one; for another stream any context will do.
  stream_scope(int ordinal, cudaStream_t stream) {
    if (is_default(stream)) {
      pushed_.make_current(ordinal);
    } else {
      pushed_.require_one(ordinal);
    }
  }
  /// For a stream of a device that is not known. A default stream is that of the thread's device.
  explicit stream_scope(cudaStream_t stream) noexcept {
    if (!is_default(stream)) pushed_.require_one_of(stream);
  }

 private:
  context_push pushed_;
};

/// Throws `capture_in_progress` for a stream that is being captured.
inline void require_not_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t code = cuda_try([&] { return cudaStreamIsCapturing(stream, &status); });
  if (code != cudaSuccess) throw_cuda_error(code, "cudaStreamIsCapturing");
  if (status != cudaStreamCaptureStatusNone) {
    throw_cuda_error(cudaErrorStreamCaptureUnsupported, "cudaStreamIsCapturing");
  }
}

/// The ordinal of a stream's device; to be asked in a `stream_scope` of the stream. Throws what
/// `cuda_error` and its children say.
[[nodiscard]] inline int ordinal_of(cudaStream_t stream) {
  int ordinal = 0;
#if CUDART_VERSION >= 12080
  require_nothing_pending("cudaStreamGetDevice");
  const cudaError_t told = cuda_try([&] { return cudaStreamGetDevice(stream, &ordinal); });
  if (told == cudaSuccess) return ordinal;
  // The driver may be older than the toolkit, by the rules of minor version compatibility.
  if (told != cudaErrorCallRequiresNewerDriver) throw_cuda_error(told, "cudaStreamGetDevice");
#endif
  context_push of_stream;
  if (!is_default(stream)) of_stream.make_current_of(stream);
  cuda_call("cudaGetDevice", [&] { return cudaGetDevice(&ordinal); });
  return ordinal;
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
