// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>

struct CUctx_st;  // what a CUcontext of the driver points to

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// The functions of the CUDA driver that make a context current, found by name: a program links the
/// runtime alone. Their types are those of `cuda.h`, but for the result, an enumeration there. Its
/// numbers are those of `cudaError_t`.
struct cuda_driver {
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*current_device)(int* device) = nullptr;
  int (*retain)(CUctx_st** context, int device) = nullptr;
  int (*release)(int device) = nullptr;
  int (*push)(CUctx_st* context) = nullptr;
  int (*pop)(CUctx_st** context) = nullptr;
  int (*context_of)(cudaStream_t stream, CUctx_st** context) = nullptr;

  /// Throws what `cuda_error` and its children say; asks anew the next time then.
  [[nodiscard]] static const cuda_driver& get() {
    static const cuda_driver all = found();
    return all;
  }

 private:
  [[nodiscard]] static cuda_driver found() {
    cuda_driver all;
    find(all.device_get, "cuDeviceGet");
    find(all.current_device, "cuCtxGetDevice");
    find(all.retain, "cuDevicePrimaryCtxRetain");
    find(all.release, "cuDevicePrimaryCtxRelease");
    find(all.push, "cuCtxPushCurrent");
    find(all.pop, "cuCtxPopCurrent");
    find(all.context_of, "cuStreamGetCtx");
    return all;
  }

  template <class Function>
  static void find(Function*& function, const char* name) {
    void* address = nullptr;
    const cudaError_t code = cuda_try([&] {
#if CUDART_VERSION >= 12050
      constexpr unsigned version = 12000;  // of the driver's interface, whatever the toolkit's
      return cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, nullptr);
#else
      return cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, nullptr);
#endif
    });
    if (code != cudaSuccess) throw_cuda_error(code, name);
    if (address == nullptr) throw_cuda_error(cudaErrorInsufficientDriver, name);
    function = reinterpret_cast<Function*>(address);
  }
};

/// A device's primary context on the calling thread's stack of contexts, until this object goes; or
/// nothing. The thread has then what it had before, a context or none.
///
/// Not `cudaSetDevice` there and back: it makes a context on its device (since CUDA 12.0), so to go
/// back to device 0, which a thread has that chose none, would cost a process hundreds of megabytes
/// of a GPU that it does not use. To stay on the new device would move the program's next
/// allocation.
class context_push {
 public:
  context_push() = default;
  context_push(context_push&&) = delete;
  ~context_push() {
    if (pop_ == nullptr) return;
    CUctx_st* ours = nullptr;
    static_cast<void>(pop_(&ours));
  }

  /// Makes the device the calling thread's, where it is not. Once at most. Throws what `cuda_error`
  /// and its children say.
  void make_current(int ordinal) {
    require_nothing_pending("cuCtxGetDevice");
    const cuda_driver& driver = cuda_driver::get();
    const int device = handle_of(driver, ordinal);
    int current = 0;
    const bool has_one = has_context(driver, current);
    if (!has_one || current != device) push(driver, ordinal, device);
  }

  /// Gives a thread that has no context that of this device: else the next call of the runtime
  /// would make one on device 0. So nothing is to be done for that one. Once at most. Never throws:
  /// what keeps a context from becoming current, the calls in the scope tell.
  void require_one(int ordinal) noexcept {
    if (ordinal == 0) return;
    try {
      const cuda_driver& driver = cuda_driver::get();
      int current = 0;
      if (!has_context(driver, current)) push(driver, ordinal, handle_of(driver, ordinal));
    } catch (...) {
    }
  }

  /// Makes the context of `stream` current; it must not be a default stream.
  void require_one_of(cudaStream_t stream) noexcept {
    try {
      const cuda_driver& driver = cuda_driver::get();
      int current = 0;
      if (!has_context(driver, current)) push_of(driver, stream);
    } catch (...) {
    }
  }

  /// Makes the context of a stream current, which is none of the default streams. Once at most.
  /// Throws what `cuda_error` and its children say.
  void make_current_of(cudaStream_t stream) {
    require_nothing_pending("cuStreamGetCtx");
    push_of(cuda_driver::get(), stream);
  }

 private:
  static void require(int result, const cuda_site& site) {
    if (result != 0) throw_cuda_error(static_cast<cudaError_t>(result), site);
  }

  /// Whether the calling thread has a context, and if so of which device.
  [[nodiscard]] static bool has_context(const cuda_driver& driver, int& device) {
    const int result = driver.current_device(&device);
    if (result == cudaErrorDeviceUninitialized || result == cudaErrorInitializationError) {
      return false;  // there is none; or nobody in the process has used CUDA yet
    }
    require(result, "cuCtxGetDevice");
    return true;
  }

  [[nodiscard]] static int handle_of(const cuda_driver& driver, int ordinal) {
    thread_local int known = -1;  // for good: a device keeps its handle
    thread_local int handle = 0;
    if (known != ordinal) {
      int device = 0;
      require(driver.device_get(&device, ordinal), "cuDeviceGet");
      known = ordinal;
      handle = device;
    }
    return handle;
  }

  void push(const cuda_driver& driver, int ordinal, int device) {
    // From here on the runtime holds the context, until `cudaDeviceReset` or the end of the
    // process: if we were the only ones to retain it, memory that is allocated in the scope would
    // go with it.
    const cudaError_t made = cuda_try([&] { return cudaInitDevice(ordinal, 0, 0); });
    if (made != cudaSuccess) throw_cuda_error(made, "cudaInitDevice");
    CUctx_st* context = nullptr;
    require(driver.retain(&context, device), "cuDevicePrimaryCtxRetain");
    const int pushed = driver.push(context);
    static_cast<void>(driver.release(device));  // retained for the handle's sake alone
    require(pushed, "cuCtxPushCurrent");
    pop_ = driver.pop;
  }

  void push_of(const cuda_driver& driver, cudaStream_t stream) {
    CUctx_st* context = nullptr;
    require(driver.context_of(stream, &context), "cuStreamGetCtx");
    require(driver.push(context), "cuCtxPushCurrent");
    pop_ = driver.pop;
  }

  int (*pop_)(CUctx_st**) = nullptr;  // null: there is nothing to pop
};

/// Makes a device the calling thread's for a scope. Does nothing where it is already.
class scoped_device {
 public:
  explicit scoped_device(int ordinal) { pushed_.make_current(ordinal); }

 private:
  context_push pushed_;
};

/// A scope for calls of the runtime to which any context will do: they make none on device 0 for
/// work on the device `ordinal`.
class scoped_context {
 public:
  explicit scoped_context(int ordinal) noexcept { pushed_.require_one(ordinal); }

 private:
  context_push pushed_;
};

/// The calling thread's device; 0 where it has no context. Makes none.
[[nodiscard]] inline int current_ordinal() noexcept {
  int ordinal = 0;
  try {
    int device = 0;
    if (cuda_driver::get().current_device(&device) != 0) return 0;
  } catch (...) {
    return 0;
  }
  const cudaError_t code = cuda_try([&] { return cudaGetDevice(&ordinal); });
  return code == cudaSuccess ? ordinal : 0;
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
