#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

#include <penstock/core/error.hpp>

namespace penstock::inline PENSTOCK_ABI {

/// A call to the CUDA runtime failed. The message says which, where, and what CUDA calls the error;
/// the children below are the failures that a program can do something about.
class [[gnu::visibility("default")]] cuda_error : public error {
 public:
  cuda_error(cudaError_t code, const char* call, const std::string& message)
      : error(message), code_(code), call_(call) {}
  /// What the runtime returned.
  [[nodiscard]] cudaError_t code() const noexcept { return code_; }
  /// The name of the runtime function.
  [[nodiscard]] const char* call() const noexcept { return call_; }

 private:
  cudaError_t code_;
  const char* call_;
};

/// There is no NVIDIA driver, or one that is too old for the runtime.
class [[gnu::visibility("default")]] no_cuda_driver : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// There is a driver, and it sees no device.
class [[gnu::visibility("default")]] no_cuda_device : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// No device has this ordinal.
class [[gnu::visibility("default")]] invalid_device_ordinal : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// A stream that a feed can't be ordered against.
class [[gnu::visibility("default")]] unusable_stream : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// A stream that belongs to another device than the one it is used with.
class [[gnu::visibility("default")]] stream_of_another_device : public unusable_stream {
 public:
  using unusable_stream::unusable_stream;
};

/// A CUDA graph is being captured from a stream where the flow needs to do real work, or the call is
/// not allowed while a capture goes on.
class [[gnu::visibility("default")]] capture_in_progress : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// The device's context is dead: a kernel has faulted or the hardware has failed. Every further call
/// fails too; only a new process, or `cudaDeviceReset` after all CUDA objects are gone, goes on.
class [[gnu::visibility("default")]] cuda_context_lost : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// An error of an earlier CUDA call that is not ours stood in the thread's last-error slot, where a
/// call of ours would have hidden it. It still stands there; our call was not made.
class [[gnu::visibility("default")]] pending_cuda_error : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

namespace detail {

/// Which call, made where. Made of a name alone, so that it notes the place of the caller.
struct cuda_site {
  const char* call;
  const char* file;
  int line;

  // NOLINTNEXTLINE: implicit, for the place to be that of the call
  cuda_site(const char* name, const char* in = __builtin_FILE(), int at = __builtin_LINE()) noexcept
      : call(name), file(in), line(at) {}
};

/// Whether an error stays for the rest of the context's life.
[[nodiscard]] inline bool is_sticky(cudaError_t code) noexcept {
  switch (code) {
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
  return std::string{what} + ": " + site.call + " gave " + cudaGetErrorName(code) + " (" +
         cudaGetErrorString(code) + "), called at " + site.file + ":" + std::to_string(site.line) +
         (*advice == '\0' ? "" : "; ") + advice;
}

template <class Error>
[[noreturn]] void throw_as(cudaError_t code, const cuda_site& site, const char* what,
                           const char* advice) {
  throw Error(code, site.call, described(code, site, what, advice));
}

/// Throws the type that fits `code`, which must be an error.
[[noreturn]] inline void throw_cuda_error(cudaError_t code, const cuda_site& site) {
  if (is_sticky(code)) {
    throw_as<cuda_context_lost>(code, site, "the CUDA context is lost",
                                "the fault is that of an earlier kernel or copy: run the program "
                                "under compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1");
  }
  switch (code) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorInitializationError:
      throw_as<no_cuda_driver>(code, site, "no usable NVIDIA driver",
                               "install or update the driver (nvidia-smi shows it), or use "
                               "penstock::host_device");
    case cudaErrorNoDevice:
      throw_as<no_cuda_device>(
          code, site, "no CUDA device",
          "look at CUDA_VISIBLE_DEVICES and at the container's devices, or use "
          "penstock::host_device");
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
                                    "end the capture before the next batch is asked for and before "
                                    "a lease ends: copies and their events stay outside of graphs");
    default:
      throw_as<cuda_error>(code, site, "a CUDA call failed", "");
  }
}

/// Throws for an error of somebody else's that waits in the thread's last-error slot.
[[noreturn]] inline void throw_pending(cudaError_t pending, const cuda_site& site) {
  switch (pending) {
    case cudaErrorInsufficientDriver:  // a runtime that can't start answers so to every question
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorInitializationError:
    case cudaErrorNoDevice:
      throw_cuda_error(pending, site);
    default:
      if (is_sticky(pending)) throw_cuda_error(pending, site);
      throw_as<pending_cuda_error>(pending, site,
                                   "an earlier CUDA call of the program failed unseen",
                                   "the error is left from before this call: check the program's "
                                   "own calls and kernel launches on this thread");
  }
}

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
/// is told by the code. One that waited there already is somebody else's, and stays.
template <class Call>
[[nodiscard]] cudaError_t cuda_try(const Call& call) {
  const bool theirs = pending_error() != cudaSuccess;
  const cudaError_t code = call();
  if (code != cudaSuccess && !theirs) static_cast<void>(cudaGetLastError());
  return code;
}

/// Makes a call of the CUDA runtime; throws when it fails. When an error of somebody else's waits, it
/// throws that and makes no call.
template <class Call>
void cuda_call(cuda_site site, const Call& call) {
  require_nothing_pending(site);
  const cudaError_t code = cuda_try(call);
  if (code != cudaSuccess) throw_cuda_error(code, site);
}

/// The same for calls that wait: they are made in any case, because memory may go behind them, and
/// what they throw is their own error: it has not been waited for then.
template <class Call>
void cuda_wait(cuda_site site, const Call& call) {
  const cudaError_t code = cuda_try(call);
  if (code != cudaSuccess) throw_cuda_error(code, site);
}

/// The same for destructors, once and come what may: a driver that is being unloaded and a context
/// that is lost have freed everything already.
template <class Call>
void cuda_release(const Call& call) noexcept {
  static_cast<void>(cuda_try(call));
}

/// Makes a device the calling thread's for a scope. Does nothing where it is already: setting a
/// device, also the old one again, makes a context there, which costs memory.
class scoped_device {
 public:
  explicit scoped_device(int ordinal) {
    cuda_call("cudaGetDevice", [&] { return cudaGetDevice(&before_); });
    if (before_ == ordinal) return;
    cuda_call("cudaSetDevice", [&] { return cudaSetDevice(ordinal); });
    changed_ = true;
  }
  scoped_device(scoped_device&&) = delete;
  ~scoped_device() {
    if (changed_) cuda_release([&] { return cudaSetDevice(before_); });
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Lets the calling thread allocate and wait for a scope while another thread captures a graph: it
/// takes no part in that capture, and without this its calls would end it. Never throws: where the
/// mode can't be set, the calls in the scope say why.
class scoped_relaxed_capture {
 public:
  scoped_relaxed_capture() noexcept { exchange(); }
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

}  // namespace penstock::inline PENSTOCK_ABI
