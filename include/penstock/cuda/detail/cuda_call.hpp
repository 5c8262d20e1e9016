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

struct CUctx_st;  // CUcontext of the driver is a pointer to this type

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Returns the pending error in the thread's last-error slot. Ignores "not ready", which a query of
/// a stream leaves in the slot.
[[nodiscard]] inline cudaError_t pending_error() noexcept {
  const cudaError_t pending = cudaPeekAtLastError();
  return pending == cudaErrorNotReady ? cudaSuccess : pending;
}

inline void require_nothing_pending(const cuda_site& site) {
  const cudaError_t pending = pending_error();
  if (pending != cudaSuccess) throw_pending(pending, site);
}

/// Makes a call and returns its code. If the call leaves an error in the last-error slot, clears
/// it, because the code reports it. An error that was already pending belongs to the program and is
/// not cleared, but a failing call overwrites it, because the runtime has only one slot.
template <class Call>
[[nodiscard]] cudaError_t cuda_try(const Call& call) {
  const bool theirs = pending_error() != cudaSuccess;
  const cudaError_t code = call();
  if (code != cudaSuccess && !theirs) static_cast<void>(cudaGetLastError());
  return code;
}

/// Makes a call of the CUDA runtime, and throws if it fails. If an error of the program is pending,
/// throws that error instead of calling.
template <class Call>
void cuda_call(cuda_site site, const Call& call) {
  require_nothing_pending(site);
  const cudaError_t code = call();
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // the library's error, since none was pending
  throw_cuda_error(code, site);
}

/// Makes a call that waits or queries. Makes it even if an error is pending, because the caller may
/// free memory afterwards. Throws if the call fails, in which case it has not waited.
template <class Call>
void cuda_wait(cuda_site site, const Call& call) {
  const cudaError_t code = cuda_try(call);
  if (code != cudaSuccess) throw_cuda_error(code, site);
}

/// Makes a call that queries whether work is complete, and returns the answer. Otherwise like
/// `cuda_wait`. The runtime stores "not ready" as the last error, so this function clears it.
template <class Call>
[[nodiscard]] bool cuda_query(cuda_site site, const Call& call) {
  const cudaError_t code = cuda_try(call);
  if (code != cudaSuccess && code != cudaErrorNotReady) throw_cuda_error(code, site);
  return code == cudaSuccess;
}

/// Makes a call in a destructor. Ignores its result: if the driver is being unloaded or the context
/// is lost, everything is freed already.
template <class Call>
void cuda_release(const Call& call) noexcept {
  static_cast<void>(cuda_try(call));
}

/// Returns the flag that `cuda_device::make_current` sets: true if the calling thread's capture
/// mode is permanently relaxed.
[[nodiscard]] inline bool& is_relaxed_for_good() noexcept {
  thread_local bool is_relaxed = false;
  return is_relaxed;
}

/// Lets the calling thread allocate and wait in a scope while another thread captures a graph,
/// without invalidating that capture. Does nothing if the thread is permanently relaxed. Never
/// throws: if the mode cannot be set, the calls in the scope report why.
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

/// Puts the calling thread in the strict capture mode while this object lives: CUDA then refuses
/// calls that a capture forbids, even if the thread's mode is permanently relaxed. Restores the
/// previous mode. Throws `cuda_error` or a derived type.
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

/// The functions of the CUDA driver that make a context current. Looked up by name, because a
/// program links only the runtime. The types are those of `cuda.h`, except that the result is an
/// `int` with the values of `cudaError_t`.
struct cuda_driver {
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*current_device)(int* device) = nullptr;
  int (*retain)(CUctx_st** context, int device) = nullptr;
  int (*release)(int device) = nullptr;
  int (*push)(CUctx_st* context) = nullptr;
  int (*pop)(CUctx_st** context) = nullptr;
  int (*context_of)(cudaStream_t stream, CUctx_st** context) = nullptr;

  /// Returns the functions. Throws `cuda_error` or a derived type, in which case the next call
  /// looks them up again.
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

/// Pushes a device's primary context on the calling thread's context stack, if necessary. The
/// destructor pops it, so the thread has its previous context again, or none.
///
/// Setting and restoring the device with `cudaSetDevice` would not work: since CUDA 12.0 it creates
/// a context. Restoring device 0, the default of a thread, would use hundreds of megabytes on a GPU
/// that the process may not need. Not restoring it would redirect the program's next allocation.
class context_push {
 public:
  context_push() = default;
  context_push(context_push&&) = delete;
  ~context_push() {
    if (pop_ == nullptr) return;
    CUctx_st* ours = nullptr;
    static_cast<void>(pop_(&ours));
  }

  /// Makes the device current on the calling thread, unless it already is. May be called once per
  /// object. Throws `cuda_error` or a derived type.
  void make_current(int ordinal) {
    require_nothing_pending("cuCtxGetDevice");
    make_current_to_wait(ordinal);
  }

  /// Like `make_current`, for a call that waits. Works even if an error of the program is pending.
  void make_current_to_wait(int ordinal) {
    const cuda_driver& driver = cuda_driver::get();
    const int device = handle_of(driver, ordinal);
    if (current_device(driver) != device) push(driver, ordinal, device);
  }

  /// If the thread has no context, makes the context of this device current. Otherwise the next
  /// runtime call would create a context on device 0. Does nothing for device 0 itself. May be
  /// called once per object. Never throws: if the context cannot be made current, the calls in the
  /// scope report why.
  void require_one(int ordinal) noexcept {
    if (ordinal == 0) return;
    try {
      const cuda_driver& driver = cuda_driver::get();
      if (!current_device(driver)) push(driver, ordinal, handle_of(driver, ordinal));
    } catch (...) {
    }
  }

  /// If the thread has no context, makes the context of `stream` current. `stream` must not be a
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

  /// Returns the device of the calling thread's context, if it has a context.
  [[nodiscard]] static std::optional<int> current_device(const cuda_driver& driver) {
    int device = 0;
    const int result = driver.current_device(&device);
    if (result == cudaErrorDeviceUninitialized || result == cudaErrorInitializationError) {
      return std::nullopt;  // the process may not have used CUDA yet
    }
    require(result, "cuCtxGetDevice");
    return device;
  }

  [[nodiscard]] static int handle_of(const cuda_driver& driver, int ordinal) {
    thread_local int known = -1;  // never changes: a device keeps its handle
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
    // Otherwise the end of this scope would destroy the context, and with it the memory allocated
    // in the scope.
    cuda_wait("cudaInitDevice", [&] { return cudaInitDevice(ordinal, 0, 0); });
    CUctx_st* context = nullptr;
    require(driver.retain(&context, device), "cuDevicePrimaryCtxRetain");
    const int pushed = driver.push(context);
    static_cast<void>(driver.release(device));  // retained only to get the handle
    require(pushed, "cuCtxPushCurrent");
    pop_ = driver.pop;
  }

  void push_of(const cuda_driver& driver, cudaStream_t stream) {
    CUctx_st* context = nullptr;
    require(driver.context_of(stream, &context), "cuStreamGetCtx");
    require(driver.push(context), "cuCtxPushCurrent");
    pop_ = driver.pop;
  }

  int (*pop_)(CUctx_st**) = nullptr;  // null: nothing to pop
};

/// Makes a device current on the calling thread while this object lives. Does nothing if it already
/// is.
struct scoped_device : private context_push {
  explicit scoped_device(int ordinal) { make_current(ordinal); }
};

/// Guards runtime calls that need no particular context. Prevents them from creating a context on
/// device 0 for work on device `ordinal`.
struct scoped_context : private context_push {
  explicit scoped_context(int ordinal) noexcept { require_one(ordinal); }
};

/// Returns the calling thread's device, or 0 if the thread has no context. Creates no context.
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

/// Returns the NUMA node of the device on the bus at `id`, from `root`/bus/pci/devices, or -1 if
/// the device does not exist or its node is unknown. CUDA writes the id in upper case, the kernel
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

/// Returns the host's NUMA node next to the device `ordinal`, or -1 if the driver and the system do
/// not report it. If the driver's query fails, its node counts as unknown; throws only a persistent
/// error. `root` is "/sys", except in tests.
[[nodiscard]] inline int nearest_node(int ordinal, const std::string& root = "/sys") {
  require_nothing_pending("cudaDeviceGetAttribute");
  const auto knows = [](const cuda_site& site, const auto& call) {
    const cudaError_t code = cuda_try(call);
    if (is_sticky(code)) throw_cuda_error(code, site);
    return code == cudaSuccess;
  };
  int node = -1;
  const bool is_told = knows("cudaDeviceGetAttribute", [&] {
    return cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ordinal);
  });
  if (is_told && node >= 0) return node;
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

/// Returns a handle that means the same stream in every translation unit, even if they are compiled
/// with different values of `--default-stream`.
template <bool NullIsPerThread>
[[nodiscard]] cudaStream_t named_stream(cudaStream_t stream) noexcept {
  if (stream != nullptr) return stream;
  return NullIsPerThread ? cudaStreamPerThread : cudaStreamLegacy;
}

/// Returns true if a handle means the per-thread default stream.
[[nodiscard]] inline bool is_per_thread(cudaStream_t stream) noexcept {
  return stream == cudaStreamPerThread;
}

/// Returns true if a handle means a default stream of the calling thread's device.
[[nodiscard]] inline bool is_default(cudaStream_t stream) noexcept {
  return stream == cudaStreamLegacy || is_per_thread(stream);
}

/// Makes a context current for a call that takes a stream, while this object lives.
struct stream_scope : private context_push {
  /// Makes the scope for a stream of the device `ordinal`. Makes the device current only for a
  /// default stream, because any context works for other streams.
  stream_scope(int ordinal, cudaStream_t stream) {
    if (is_default(stream)) {
      make_current(ordinal);
    } else {
      require_one(ordinal);
    }
  }
  /// Makes the scope for a stream of an unknown device. A default stream means the default stream
  /// of the thread's device.
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

/// Returns the ordinal of the device of a stream that is not being captured. Call it in a
/// `stream_scope` of the stream. Throws `cuda_error` or a derived type.
[[nodiscard]] inline int ordinal_of(cudaStream_t stream) {
  int ordinal = 0;
#if CUDART_VERSION >= 12080
  require_nothing_pending("cudaStreamGetDevice");
  const scoped_relaxed_capture relaxed;
  const cudaError_t status = cuda_try([&] { return cudaStreamGetDevice(stream, &ordinal); });
  if (status == cudaSuccess) return ordinal;
  // The driver may be older than the toolkit (minor version compatibility).
  if (status != cudaErrorCallRequiresNewerDriver) throw_cuda_error(status, "cudaStreamGetDevice");
#endif
  context_push of_stream;
  if (!is_default(stream)) of_stream.make_current_of(stream);
  cuda_call("cudaGetDevice", [&] { return cudaGetDevice(&ordinal); });
  return ordinal;
}

/// Owns an object of the CUDA runtime, move-only: the base of streams, events and graphs. `Traits`
/// has the type `native_type` and the function `destroy(handle)`, which is called once and must not
/// throw. Destruction does not invalidate another thread's capture, and creates no context on
/// another device.
template <class Traits>
class unique_handle {
 public:
  /// The runtime's own type.
  using native_type = typename Traits::native_type;

  unique_handle(unique_handle&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), ordinal_(other.ordinal_) {}
  unique_handle& operator=(unique_handle&& other) noexcept {
    const native_type next = std::exchange(other.handle_, nullptr);  // first, for self-assignment
    const unique_handle old{std::exchange(handle_, next), std::exchange(ordinal_, other.ordinal_)};
    return *this;
  }

  /// Returns the native handle. Null after `release`, and for moved-from and default-constructed
  /// objects.
  [[nodiscard]] native_type get() const noexcept { return handle_; }
  /// Releases ownership to the caller.
  [[nodiscard]] native_type release() noexcept { return std::exchange(handle_, nullptr); }
  /// Returns the device of the object. For an adopted handle, this is the device that was current
  /// when it was adopted.
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
