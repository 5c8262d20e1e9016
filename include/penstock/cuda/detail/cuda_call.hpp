// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <cuda_runtime_api.h>

#include <penstock/core/support/text_of_file.hpp>
#include <penstock/cuda/cuda_error.hpp>

struct CUctx_st;  // pointee of the driver type CUcontext

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Returns the pending error in the thread's last-error slot. Ignores "not ready", which a stream
/// query stores in the slot.
[[nodiscard]] inline cudaError_t pending_error() noexcept {
  const cudaError_t pending = cudaPeekAtLastError();
  return pending == cudaErrorNotReady ? cudaSuccess : pending;
}

inline void require_nothing_pending(const cuda_site& site) {
  const cudaError_t pending = pending_error();
  if (pending != cudaSuccess) throw_pending(pending, site);
}

/// Makes a call and returns its code. Clears the error that the call leaves in the last-error slot,
/// because the returned code reports it. An error that was already pending belongs to the program
/// and is not cleared. However, a failing call overwrites the pending error, because the runtime
/// has only one slot.
template <class Call>
[[nodiscard]] cudaError_t cuda_try(const Call& call) {
  const bool theirs = pending_error() != cudaSuccess;
  const cudaError_t code = call();
  if (code != cudaSuccess && !theirs) static_cast<void>(cudaGetLastError());
  return code;
}

/// Calls the CUDA runtime, and throws if the call fails. If an error of the program is pending,
/// throws that error instead of calling.
template <class Call>
void cuda_call(cuda_site site, const Call& call) {
  require_nothing_pending(site);
  const cudaError_t code = call();
  if (code == cudaSuccess) return;
  // The error belongs to the library, because no error was pending before the call.
  static_cast<void>(cudaGetLastError());
  throw_cuda_error(code, site);
}

/// Makes a call that waits or queries, even if an error is pending, because the caller may free
/// memory afterwards. If the call fails, it has not waited, and this function throws.
template <class Call>
void cuda_wait(cuda_site site, const Call& call) {
  const cudaError_t code = cuda_try(call);
  if (code != cudaSuccess) throw_cuda_error(code, site);
}

/// Makes a call that queries whether work is complete, and returns the answer. Otherwise the same
/// as `cuda_wait`. Clears "not ready", which the runtime stores as the last error.
template <class Call>
[[nodiscard]] bool cuda_query(cuda_site site, const Call& call) {
  const cudaError_t code = cuda_try(call);
  if (code != cudaSuccess && code != cudaErrorNotReady) throw_cuda_error(code, site);
  return code == cudaSuccess;
}

/// Makes a call in a destructor. Ignores errors, which occur if the driver is being unloaded or the
/// context is lost. In these cases, everything has already been freed.
template <class Call>
void cuda_release(const Call& call) noexcept {
  static_cast<void>(cuda_try(call));
}

/// Returns the thread-local flag set by `cuda_device::make_current`, which is true if the thread's
/// capture mode is permanently relaxed.
[[nodiscard]] inline bool& is_relaxed_for_good() noexcept {
  thread_local bool is_relaxed = false;
  return is_relaxed;
}

/// Allows the calling thread to allocate and wait in a scope while another thread captures a graph,
/// without invalidating that capture. Does nothing if the thread is permanently relaxed. Never
/// throws. If the mode cannot be set, calls in the scope report the error.
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

/// Sets the strict capture mode of the calling thread for the lifetime of this object, even if the
/// mode is permanently relaxed. In strict mode, CUDA rejects calls that are forbidden during a
/// capture. The destructor restores the previous mode. Throws `cuda_error` or a derived type.
class scoped_strict_capture {
 public:
  scoped_strict_capture() {
    cuda_call("cudaThreadExchangeStreamCaptureMode",
              [&] { return cudaThreadExchangeStreamCaptureMode(&mode_); });
    is_relaxed_for_good() = false;
  }
  scoped_strict_capture(scoped_strict_capture&&) = delete;
  ~scoped_strict_capture() {
    const bool is_restored =
        cuda_try([&] { return cudaThreadExchangeStreamCaptureMode(&mode_); }) == cudaSuccess;
    is_relaxed_for_good() = was_relaxed_ && is_restored;
  }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeThreadLocal;
  bool was_relaxed_ = is_relaxed_for_good();
};

/// CUDA driver functions that make a context current, looked up by name because programs link only
/// the runtime. The types equal those in `cuda.h`, except that the result is an `int` with the
/// values of `cudaError_t`.
struct cuda_driver {
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*current_device)(int* device) = nullptr;
  int (*retain)(CUctx_st** context, int device) = nullptr;
  int (*release)(int device) = nullptr;
  int (*push)(CUctx_st* context) = nullptr;
  int (*pop)(CUctx_st** context) = nullptr;
  int (*context_of)(cudaStream_t stream, CUctx_st** context) = nullptr;

  /// Returns the functions. Throws `cuda_error` or a derived type, in which case the next call
  /// repeats the lookup.
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
    cuda_wait(name, [&] {
#if CUDART_VERSION >= 12050
      constexpr unsigned version = 12000;  // version of the driver interface
      return cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, nullptr);
#else
      return cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, nullptr);
#endif
    });
    if (address == nullptr) throw_cuda_error(cudaErrorInsufficientDriver, name);
    function = reinterpret_cast<Function*>(address);
  }
};

/// Pushes the primary context of a device on the context stack of the calling thread, if necessary.
/// The destructor pops the context, which restores the previous context of the thread, if any.
///
/// `cudaSetDevice` is not an alternative, because since CUDA 12.0 it creates a context. Restoring
/// device 0, which is the default of a thread, would use hundreds of megabytes on a GPU that the
/// process may not need. Not restoring the device would redirect the next allocation of the
/// program.
class context_push {
 public:
  context_push() = default;
  context_push(context_push&&) = delete;
  ~context_push() {
    if (pop_ == nullptr) return;
    CUctx_st* ours = nullptr;
    static_cast<void>(pop_(&ours));
  }

  /// Makes the device current on the calling thread, if necessary. May be called once per object.
  /// Throws `cuda_error` or a derived type.
  void make_current(int ordinal) {
    require_nothing_pending("cuCtxGetDevice");
    make_current_to_wait(ordinal);
  }

  /// Makes the device current for a call that waits, even if an error of the program is pending.
  /// Otherwise the same as `make_current`.
  void make_current_to_wait(int ordinal) {
    const cuda_driver& driver = cuda_driver::get();
    const int device = handle_of(driver, ordinal);
    if (current_device(driver) != device) push(driver, ordinal, device);
  }

  /// Makes the context of the device current if the thread has no context. Otherwise the next
  /// runtime call would create a context on device 0. Does nothing for device 0. May be called once
  /// per object. Never throws. If the context cannot be made current, calls in the scope report the
  /// error.
  void require_one(int ordinal) noexcept {
    if (ordinal == 0) return;
    try {
      const cuda_driver& driver = cuda_driver::get();
      if (!current_device(driver)) push(driver, ordinal, handle_of(driver, ordinal));
    } catch (...) {
    }
  }

  /// Makes the context of `stream` current if the thread has no context. `stream` must not be a
  /// default stream.
  void require_one_of(cudaStream_t stream) noexcept {
    try {
      const cuda_driver& driver = cuda_driver::get();
      if (!current_device(driver)) push_of(driver, stream);
    } catch (...) {
    }
  }

  /// Makes the context of `stream` current. `stream` must not be a default stream. May be called
  /// once per object. Throws `cuda_error` or a derived type.
  void make_current_of(cudaStream_t stream) {
    require_nothing_pending("cuStreamGetCtx");
    push_of(cuda_driver::get(), stream);
  }

 private:
  static void require(int result, const cuda_site& site) {
    if (result != 0) throw_cuda_error(static_cast<cudaError_t>(result), site);
  }

  /// Returns the device of the calling thread's context, if any.
  [[nodiscard]] static std::optional<int> current_device(const cuda_driver& driver) {
    int device = 0;
    const int result = driver.current_device(&device);
    if (result == cudaErrorDeviceUninitialized || result == cudaErrorInitializationError) {
      return std::nullopt;  // The process may not have used CUDA yet.
    }
    require(result, "cuCtxGetDevice");
    return device;
  }

  [[nodiscard]] static int handle_of(const cuda_driver& driver, int ordinal) {
    thread_local int known = -1;  // A device never changes its handle.
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
    // Makes the runtime retain the context until `cudaDeviceReset` or the end of the process.
    // Otherwise the end of this scope would destroy the context, including the memory allocated in
    // the scope.
    cuda_wait("cudaInitDevice", [&] { return cudaInitDevice(ordinal, 0, 0); });
    CUctx_st* context = nullptr;
    require(driver.retain(&context, device), "cuDevicePrimaryCtxRetain");
    const int pushed = driver.push(context);
    static_cast<void>(driver.release(device));  // was retained only for its handle
    require(pushed, "cuCtxPushCurrent");
    pop_ = driver.pop;
  }

  void push_of(const cuda_driver& driver, cudaStream_t stream) {
    CUctx_st* context = nullptr;
    require(driver.context_of(stream, &context), "cuStreamGetCtx");
    require(driver.push(context), "cuCtxPushCurrent");
    pop_ = driver.pop;
  }

  int (*pop_)(CUctx_st**) = nullptr;  // null without a context to pop
};

/// Makes a device current on the calling thread for the lifetime of this object, if necessary.
struct scoped_device : private context_push {
  explicit scoped_device(int ordinal) { make_current(ordinal); }
};

/// Guards runtime calls that can use any context. Prevents these calls from creating a context on
/// device 0 for work on device `ordinal`.
struct scoped_context : private context_push {
  explicit scoped_context(int ordinal) noexcept { require_one(ordinal); }
};

/// Returns the device of the calling thread, or 0 if the thread has no context. Does not create a
/// context.
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

/// Returns the NUMA node of the PCI device `id` according to `root`/bus/pci/devices, or -1 if the
/// device does not exist or its node is unknown. CUDA formats the id in upper case, but the kernel
/// in lower case. Reads a file.
[[nodiscard]] inline int node_of_pci_device(const std::string& root, std::string_view id) {
  std::string name{id};
  for (char& letter : name) {
    if (letter >= 'A' && letter <= 'F') letter = static_cast<char>(letter - 'A' + 'a');
  }
  const auto is_of_an_id = [](char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f') || letter == ':' ||
           letter == '.';
  };
  if (!std::all_of(name.begin(), name.end(), is_of_an_id)) return -1;
  const std::string text = text_of_file(root + "/bus/pci/devices/" + name + "/numa_node");
  std::string_view lines = text;
  const std::string_view line = cut_before(lines, '\n');
  int node = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), node);
  const bool is_node = error == std::errc{} && end == line.data() + line.size() && node >= 0;
  return is_node ? node : -1;
}

/// Returns the host NUMA node closest to the device `ordinal`, or -1 if it is unknown to the driver
/// and the system. Ignores errors of the driver query, except persistent errors, which are thrown.
/// `root` is "/sys", except in tests.
[[nodiscard]] inline int nearest_node(int ordinal, const std::string& root = "/sys") {
  require_nothing_pending("cudaDeviceGetAttribute");
  const auto knows = [](const cuda_site& site, const auto& call) {
    const cudaError_t code = cuda_try(call);
    if (is_sticky(code)) throw_cuda_error(code, site);
    return code == cudaSuccess;
  };
  int node = -1;
  const bool is_reported = knows("cudaDeviceGetAttribute", [&] {
    return cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ordinal);
  });
  if (is_reported && node >= 0) return node;
  std::array<char, 32> id{};
  const bool has_id = knows("cudaDeviceGetPCIBusId", [&] {
    return cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()) - 1, ordinal);
  });
  return has_id ? node_of_pci_device(root, id.data()) : -1;
}

/// True if a null handle means the per-thread default stream in this translation unit.
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
static constexpr bool null_is_per_thread = true;
#else
static constexpr bool null_is_per_thread = false;
#endif

/// Returns a handle that means the same stream in every translation unit, regardless of
/// `--default-stream`.
template <bool NullIsPerThread>
[[nodiscard]] cudaStream_t named_stream(cudaStream_t stream) noexcept {
  if (stream != nullptr) return stream;
  return NullIsPerThread ? cudaStreamPerThread : cudaStreamLegacy;
}

/// Returns true if a handle means the per-thread default stream.
[[nodiscard]] inline bool is_per_thread(cudaStream_t stream) noexcept {
  return stream == cudaStreamPerThread;
}

/// Returns true if a handle means a default stream of the current device.
[[nodiscard]] inline bool is_default(cudaStream_t stream) noexcept {
  return stream == cudaStreamLegacy || is_per_thread(stream);
}

/// Makes a context current for a call on a stream, for the lifetime of this object.
struct stream_scope : private context_push {
  /// Creates the scope for a stream of the device `ordinal`. Makes the device current only for a
  /// default stream, because calls on other streams work in any context.
  stream_scope(int ordinal, cudaStream_t stream) {
    if (is_default(stream)) {
      make_current(ordinal);
    } else {
      require_one(ordinal);
    }
  }
  /// Creates the scope for a stream of an unknown device. A default stream means the default stream
  /// of the current device.
  explicit stream_scope(cudaStream_t stream) noexcept {
    if (!is_default(stream)) require_one_of(stream);
  }
};

/// Returns an attribute of the device `ordinal`. Throws `cuda_error` or a derived type.
[[nodiscard]] inline int device_attribute(int ordinal, cudaDeviceAttr which) {
  int value = 0;
  cuda_call("cudaDeviceGetAttribute",
            [&] { return cudaDeviceGetAttribute(&value, which, ordinal); });
  return value;
}

/// Throws `capture_in_progress` if the stream is being captured.
inline void require_not_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda_wait("cudaStreamIsCapturing", [&] { return cudaStreamIsCapturing(stream, &status); });
  if (status != cudaStreamCaptureStatusNone) {
    throw_cuda_error(cudaErrorStreamCaptureUnsupported, "cudaStreamIsCapturing");
  }
}

/// Returns the device ordinal of a stream that is not being captured. Call this in a `stream_scope`
/// of the stream. Throws `cuda_error` or a derived type.
[[nodiscard]] inline int ordinal_of(cudaStream_t stream) {
  int ordinal = 0;
#if CUDART_VERSION >= 12080
  require_nothing_pending("cudaStreamGetDevice");
  const scoped_relaxed_capture relaxed;
  const cudaError_t status = cuda_try([&] { return cudaStreamGetDevice(stream, &ordinal); });
  if (status == cudaSuccess) return ordinal;
  // The driver may be older than the toolkit, because CUDA guarantees minor version compatibility.
  if (status != cudaErrorCallRequiresNewerDriver) throw_cuda_error(status, "cudaStreamGetDevice");
#endif
  context_push of_stream;
  if (!is_default(stream)) of_stream.make_current_of(stream);
  cuda_call("cudaGetDevice", [&] { return cudaGetDevice(&ordinal); });
  return ordinal;
}

/// Owns an object of the CUDA runtime. Move-only base class of streams, events and graphs. `Traits`
/// must provide the type `native_type` and the function `destroy(handle)`, which is called once and
/// must not throw. Destruction does not invalidate another thread's capture, and does not create a
/// context on another device.
template <class Traits>
class unique_handle {
 public:
  /// The handle type of the runtime.
  using native_type = typename Traits::native_type;

  unique_handle(unique_handle&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), ordinal_(other.ordinal_) {}
  unique_handle& operator=(unique_handle&& other) noexcept {
    // Empties `other` first, which makes self-assignment safe.
    const native_type next = std::exchange(other.handle_, nullptr);
    const unique_handle old{std::exchange(handle_, next), std::exchange(ordinal_, other.ordinal_)};
    return *this;
  }

  /// Returns the native handle, which is null after `release` and for moved-from and
  /// default-constructed objects.
  [[nodiscard]] native_type get() const noexcept { return handle_; }
  /// Releases ownership to the caller.
  [[nodiscard]] native_type release() noexcept { return std::exchange(handle_, nullptr); }
  /// Returns the device ordinal of the object. For an adopted handle, returns the device that was
  /// current at the adoption.
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }

 protected:
  unique_handle() = default;
  unique_handle(native_type handle, int ordinal) noexcept : handle_(handle), ordinal_(ordinal) {}
  ~unique_handle() {
    if (handle_ == nullptr) return;
    const scoped_context context{ordinal_};
    const scoped_relaxed_capture relaxed;
    Traits::destroy(handle_);
  }

 private:
  native_type handle_ = nullptr;
  int ordinal_ = 0;
};

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
