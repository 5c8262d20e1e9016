// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include <penstock/core/error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a call to the CUDA runtime fails. The message contains the call, its source location
/// and the CUDA error name. Derived types are errors that a program may want to handle.
class [[gnu::visibility("default")]] cuda_error : public error {
 public:
  cuda_error(cudaError_t code, const char* call, const std::string& message)
      : error(message), code_(code), call_(call) {}
  /// Returns the error code of the runtime.
  [[nodiscard]] cudaError_t code() const noexcept { return code_; }
  /// Returns the name of the runtime function.
  [[nodiscard]] const char* call() const noexcept { return call_; }

 private:
  cudaError_t code_;
  const char* call_;
};

/// Thrown if the NVIDIA driver is missing or too old for the runtime.
class [[gnu::visibility("default")]] no_cuda_driver : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// Thrown if a driver is installed, but no device is available.
class [[gnu::visibility("default")]] no_cuda_device : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// Thrown if no device has the requested ordinal.
class [[gnu::visibility("default")]] invalid_device_ordinal : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// Thrown for a stream whose work cannot be ordered with the work of a feed.
class [[gnu::visibility("default")]] unusable_stream : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// Thrown for a stream that belongs to another device.
class [[gnu::visibility("default")]] stream_of_another_device : public unusable_stream {
 public:
  using unusable_stream::unusable_stream;
};

/// Thrown if the stream is being captured into a CUDA graph although its work must run now, or if
/// the call is not allowed during a capture.
class [[gnu::visibility("default")]] capture_in_progress : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// Thrown if the device context is lost, because a kernel has faulted or the hardware has failed.
/// All further calls fail. Recovery requires a new process, or `cudaDeviceReset` after all CUDA
/// objects are destroyed.
class [[gnu::visibility("default")]] cuda_context_lost : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// Thrown if the thread's last-error slot contains an error from an earlier CUDA call of the
/// program. The library did not make its own call, because that call would have hidden the error.
/// The error stays in the slot.
class [[gnu::visibility("default")]] pending_cuda_error : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

namespace detail {

/// The name and source location of a call. Implicitly convertible from a name, in which case it
/// captures the caller's location.
struct cuda_site {
  const char* call;
  const char* file;
  int line;

  // NOLINTNEXTLINE: implicit, to capture the location of the call
  cuda_site(const char* name, const char* in = __builtin_FILE(), int at = __builtin_LINE()) noexcept
      : call(name), file(in), line(at) {}
};

/// Returns true if an error persists for the lifetime of the context or the process. Source: the
/// cudaError enumerators in `driver_types.h` after which "the process must be terminated".
[[nodiscard]] inline bool is_sticky(cudaError_t code) noexcept {
  constexpr int contained = 226;           // missing in some toolkits
  constexpr int tensor_memory_leak = 721;  // missing in some toolkits
  if (static_cast<int>(code) == contained || static_cast<int>(code) == tensor_memory_leak) {
    return true;
  }
  switch (code) {
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

[[nodiscard]] inline std::string described(cudaError_t code, const cuda_site& site,
                                           const char* what, const char* advice) {
  return std::string{what} + ": " + site.call + " returned " + cudaGetErrorName(code) + " (" +
         cudaGetErrorString(code) + "), called at " + site.file + ":" + std::to_string(site.line) +
         (*advice == '\0' ? "" : "; ") + advice;
}

template <class Error>
[[noreturn]] void throw_as(cudaError_t code, const cuda_site& site, const char* what,
                           const char* advice) {
  throw Error(code, site.call, described(code, site, what, advice));
}

/// Throws the exception type for `code`, which must be an error.
[[noreturn]] inline void throw_cuda_error(cudaError_t code, const cuda_site& site) {
  if (is_sticky(code)) {
    throw_as<cuda_context_lost>(code, site, "the CUDA context is lost",
                                "an earlier kernel or copy caused the fault: run the program "
                                "under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1");
  }
  switch (code) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      throw_as<no_cuda_driver>(code, site, "no usable NVIDIA driver",
                               "install or update the driver (check with nvidia-smi), or use "
                               "penstock::cpu_device");
    case cudaErrorInitializationError:
      throw_as<no_cuda_driver>(
          code, site, "no usable NVIDIA driver",
          "after fork(), initialize CUDA only in the child, or start a new process; otherwise "
          "install or update the driver (check with nvidia-smi)");
    case cudaErrorSystemNotReady:
      throw_as<no_cuda_driver>(code, site, "the NVIDIA driver is not ready",
                               "on a machine with NVSwitch, start the nvidia-fabricmanager service "
                               "of the same version as the driver");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
      throw_as<cuda_error>(code, site, "the program has no code for this GPU",
                           "compile its kernels for the GPU's architecture "
                           "(CMAKE_CUDA_ARCHITECTURES), or with PTX that the driver supports");
    case cudaErrorNoDevice:
      throw_as<no_cuda_device>(
          code, site, "no CUDA device",
          "check CUDA_VISIBLE_DEVICES and the devices of the container, or use "
          "penstock::cpu_device");
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread:
      throw_as<capture_in_progress>(code, site, "a stream is being captured",
                                    "end the capture before requesting the next batch and before a "
                                    "lease ends; copies and their events must stay outside graphs");
    default:
      throw_as<cuda_error>(code, site, "a CUDA call failed", "");
  }
}

/// Throws `pending`, an error that the program left unchecked in the last-error slot of this
/// thread.
[[noreturn]] inline void throw_pending(cudaError_t pending, const cuda_site& site) {
  switch (pending) {
    case cudaErrorInsufficientDriver:  // returned from every call if the runtime cannot start
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorNoDevice:
      throw_cuda_error(pending, site);
    default:
      if (is_sticky(pending)) throw_cuda_error(pending, site);
      throw_as<pending_cuda_error>(
          pending, site, "an earlier CUDA call of the program failed without being checked",
          "the error was pending before this call: check the program's own CUDA calls and kernel "
          "launches on this thread");
  }
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
