// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <penstock/cuda/cuda_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// The error that waits in the thread's last-error slot. Not one: "not ready", which a program that
/// polls a stream leaves there.
[[nodiscard]] inline cudaError_t pending_error() noexcept {
  const cudaError_t pending = cudaPeekAtLastError();
  return pending == cudaErrorNotReady ? cudaSuccess : pending;
}

inline void require_nothing_pending(const cuda_site& site) {
  const cudaError_t pending = pending_error();
  if (pending != cudaSuccess) throw_pending(pending, site);
}

/// Makes a call and returns its code. An error that it leaves in the last-error slot is cleared: it
/// is told by the code. An error that waited there already is the program's, and is not cleared; but
/// a call that fails puts its own code in its place, as the runtime has one slot for both.
template <class Call>
[[nodiscard]] cudaError_t cuda_try(const Call& call) {
  const bool theirs = pending_error() != cudaSuccess;
  const cudaError_t code = call();
  if (code != cudaSuccess && !theirs) static_cast<void>(cudaGetLastError());
  return code;
}

/// Makes a call of the CUDA runtime; throws when it fails. When an error of the program's own
/// waits, it throws that and makes no call.
template <class Call>
void cuda_call(cuda_site site, const Call& call) {
  require_nothing_pending(site);
  const cudaError_t code = call();
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // ours: nothing waited there
  throw_cuda_error(code, site);
}

/// Makes a call that waits: it is made in any case, because memory may be freed after it. It
/// throws its own error; nothing has been waited for then.
template <class Call>
void cuda_wait(cuda_site site, const Call& call) {
  const cudaError_t code = cuda_try(call);
  if (code != cudaSuccess) throw_cuda_error(code, site);
}

/// Makes a call in a destructor, once, whatever its result: a driver that is being unloaded and a
/// context that is lost have freed everything already.
template <class Call>
void cuda_release(const Call& call) noexcept {
  static_cast<void>(cuda_try(call));
}

/// Whether the calling thread's capture mode is relaxed for good, by `cuda_device::make_current`.
[[nodiscard]] inline bool& is_relaxed_for_good() noexcept {
  thread_local bool is_relaxed = false;
  return is_relaxed;
}

/// Lets the calling thread allocate and wait for a scope while another thread captures a graph: it
/// takes no part in that capture, and without this its calls would end it. Makes no call where the
/// thread is relaxed for good. Never throws: where the mode can't be set, the calls in the scope
/// say why.
class scoped_relaxed_capture {
 public:
  scoped_relaxed_capture() noexcept {
    if (!is_relaxed_for_good()) exchange();
  }
  scoped_relaxed_capture(scoped_relaxed_capture&&) = delete;
  ~scoped_relaxed_capture() {
    if (changed_) exchange();
  }

 private:
  void exchange() noexcept {
    changed_ = cuda_try([&] { return cudaThreadExchangeStreamCaptureMode(&mode_); }) == cudaSuccess;
  }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool changed_ = false;
};

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
