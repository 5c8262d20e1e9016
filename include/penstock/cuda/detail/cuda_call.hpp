// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <cuda_runtime_api.h>

#include <penstock/cuda/cuda_error.hpp>

struct CUctx_st;  // what a CUcontext of the driver points to

#include <penstock/core/version.hpp>

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
/// is told by the code. An error that waited there already is the program's, and is not cleared;
/// but a call that fails puts its own code in its place, as the runtime has one slot for both.
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

/// The NUMA node of the device on the bus at `id`, out of `root`/bus/pci/devices; -1 where the
/// system does not say, or there is none. CUDA writes the id in capitals, the kernel does not.
/// Reads a file.
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
  std::ifstream file{root + "/bus/pci/devices/" + name + "/numa_node"};
  std::string line;
  if (!std::getline(file, line)) return -1;
  int node = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), node);
  const bool is_node = error == std::errc{} && end == line.data() + line.size() && node >= 0;
  return is_node ? node : -1;
}

/// The host's NUMA node next to the device `ordinal`; -1 where there is none, or neither the driver
/// nor the system knows. `root` is "/sys" but for tests.
[[nodiscard]] inline int nearest_node(int ordinal, const std::string& root = "/sys") {
  require_nothing_pending("cudaDeviceGetAttribute");
  int node = -1;
  cudaError_t code =
      cuda_try([&] { return cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ordinal); });
  // A driver older than the question says that the value is invalid.
  if (code != cudaSuccess && code != cudaErrorInvalidValue)
    throw_cuda_error(code, "cudaDeviceGetAttribute");
  if (code == cudaSuccess && node >= 0) return node;
  std::array<char, 32> id{};
  code = cuda_try(
      [&] { return cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()) - 1, ordinal); });
  if (code == cudaErrorInvalidValue) return -1;
  if (code != cudaSuccess) throw_cuda_error(code, "cudaDeviceGetPCIBusId");
  return node_of_pci_device(root, id.data());
}

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

/// Owns an object of the CUDA runtime, move-only: the base of streams, events and graphs. `Traits`
/// has the type `native_type` and `destroy(handle)`, which is called once and must not throw.
/// Another thread's capture survives that, and no other device gets a context by it.
template <class Traits>
class unique_handle {
 public:
  /// The runtime's own type.
  using native_type = typename Traits::native_type;

  unique_handle(unique_handle&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), ordinal_(other.ordinal_) {}
  unique_handle& operator=(unique_handle&& other) noexcept {
    const native_type next = std::exchange(other.handle_, nullptr);  // before ours: they may be one
    const unique_handle old{std::exchange(handle_, next), std::exchange(ordinal_, other.ordinal_)};
    return *this;
  }

  /// The native handle; null after `release`, for a moved-from and for a default-made object.
  [[nodiscard]] native_type get() const noexcept { return handle_; }
  /// Gives the object away: the caller destroys it.
  [[nodiscard]] native_type release() noexcept { return std::exchange(handle_, nullptr); }
  /// The device that the object belongs to; of one that was taken over the one that was current
  /// then.
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
