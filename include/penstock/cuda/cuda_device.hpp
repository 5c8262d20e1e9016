// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <ratio>
#include <string>
#include <thread>

#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/cuda_pinned.hpp>
#include <penstock/cuda/cuda_stream.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/cuda/device_memory_ref.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Makes the sleeps of the calling thread end on time for the lifetime of this object. By default,
/// Linux may extend a sleep by 50 us, which is long enough to copy two megabytes.
class precise_naps {
 public:
  precise_naps() noexcept : slack_(::prctl(PR_GET_TIMERSLACK)) {
    if (slack_ > 0) ::prctl(PR_SET_TIMERSLACK, 1UL);
  }
  precise_naps(precise_naps&&) = delete;
  ~precise_naps() {
    if (slack_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_));
  }

 private:
  int slack_;
};

}  // namespace detail

/// A GPU through the CUDA runtime. Needs `cuda_runtime_api.h` and the runtime library, but no nvcc.
///
///     ps::loader   loader{digits, ps::shuffled{.seed = 1}, ps::cuda_device{0}, {.batch_size = 64}};
///     ps::transfer feed{loader, stream};  // a cudaStream_t
///
/// Every call is checked, see `cuda_error`. No call except `make_current` changes the thread's
/// current device or capture mode, or creates a context on another device. Therefore allocations
/// and waits do not invalidate a graph capture on another thread. The default stream can be used.
/// The library's own streams do not synchronize with the default stream.
///
/// A thread that works with a device other than 0 should first make it current (`make_current`, or
/// `cudaSetDevice`). On a thread that never chose a device, each call sets and restores the device,
/// which is estimated to cost a few microseconds per batch.
///
/// Device memory comes from `cudaMalloc`, or from a resource of the program:
///
///     ps::cuda_device device{0, pool};  // `pool` outlives all loaders, feeds and leases
///
/// Copies of a device refer to the same resource. All objects that are constructed with the device,
/// such as loaders and feeds, allocate all of their device memory from this resource: at
/// construction and, with `depth = automatic`, in the loop. A device that is made from a stream has
/// no resource.
class cuda_device {
 public:
  using stream_type = cuda_stream;
  using stream_ref = cuda_stream_ref;
  using event_type = cuda_event;
  static constexpr std::size_t grouped_bytes =
      std::size_t{256} * 1024;                    ///< total bytes of small batches that share calls
  static constexpr std::int32_t dlpack_kind = 2;  ///< see `penstock_ext/interop/dlpack_abi.hpp`
  static constexpr std::int32_t dlpack_pinned_kind = 3;  ///< page-locked host memory

  /// Refers to the device with this ordinal. Device memory comes from `memory`, or without it from
  /// `cudaMalloc`. The resource must outlive all memory, see `device_memory_ref`. Throws
  /// `no_cuda_driver`, `no_cuda_device` or `invalid_device_ordinal`.
  explicit cuda_device(int ordinal = 0, std::optional<device_memory_ref> memory = std::nullopt)
      : ordinal_(ordinal), memory_(memory) {
    const int devices = count();
    if (ordinal < 0 || ordinal >= devices) {
      throw invalid_device_ordinal(cudaErrorInvalidDevice, "cudaGetDeviceCount",
                                   "device ordinal " + std::to_string(ordinal) +
                                       " is out of range: there are " + std::to_string(devices) +
                                       " devices (CUDA_VISIBLE_DEVICES applies)");
    }
  }

  /// Returns the number of devices visible to the process. Throws `no_cuda_driver`, and
  /// `no_cuda_device` if there are no devices.
  [[nodiscard]] static int count() {
    int devices = 0;
    detail::cuda_call("cudaGetDeviceCount", [&] { return cudaGetDeviceCount(&devices); });
    if (devices == 0) detail::throw_cuda_error(cudaErrorNoDevice, "cudaGetDeviceCount");
    return devices;
  }

  /// Returns the device's CUDA ordinal.
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  /// Returns true if both refer to the same GPU. Does not compare their memory resources.
  friend bool operator==(const cuda_device& a, const cuda_device& b) noexcept {
    return a.ordinal_ == b.ordinal_;
  }

  /// Returns the host's NUMA node that is closest to this device, as reported by the driver or, if
  /// the driver does not report it, by sysfs. Returns `std::nullopt` if neither reports a node.
  /// Throws `cuda_error` if a CUDA call fails.
  [[nodiscard]] std::optional<int> host_node() const {
    const int node = detail::nearest_node(ordinal_);
    return node < 0 ? std::nullopt : std::optional<int>{node};
  }

  /// Reports which host memory kernels can access at its host address. `pinned`: page-locked
  /// memory, including registered memory. `pageable`: any host memory, because the device uses the
  /// host's page tables, as GH200, GB200 and GB10 do. `as_own`: in addition, the device is
  /// integrated and shares the host's memory, as GB10 does. `as_own` is false for a GH200, whose
  /// own memory is several times as fast, and for a Jetson that does not use the host's page
  /// tables, because it does not cache pinned memory. Throws `cuda_error` if a CUDA call fails.
  [[nodiscard]] host_access reads_host() const {
    const auto has = [this](cudaDeviceAttr attribute) {
      return detail::device_attribute(ordinal_, attribute) != 0;
    };
    const bool has_page_tables = has(cudaDevAttrPageableMemoryAccessUsesHostPageTables);
    const bool is_mapped = has(cudaDevAttrUnifiedAddressing) && has(cudaDevAttrCanMapHostMemory) &&
                           has(cudaDevAttrCanUseHostPointerForRegisteredMem);
    return {has_page_tables || is_mapped, has_page_tables,
            has_page_tables && has(cudaDevAttrIntegrated)};
  }

  [[nodiscard]] stream_type make_stream(stream_priority how = stream_priority::normal) const {
    return cuda_stream{ordinal_, how};
  }
  [[nodiscard]] event_type make_event(event_wait waits = event_wait::by_host) const {
    return cuda_event{ordinal_, waits};
  }

  /// Checks that the feed can use `stream`. Throws `stream_of_another_device` if the stream belongs
  /// to a different device. Throws `capture_in_progress` if a graph is being captured from the
  /// stream, because events recorded there become part of the graph and do not order the feed's
  /// work. Throws `unusable_stream` for the per-thread default stream, because it is a different
  /// stream on each thread, and a lease may end on any thread.
  void require_usable(stream_ref stream) const {
    if (detail::is_per_thread(stream.get())) {
      throw unusable_stream(cudaErrorInvalidResourceHandle, "cudaStreamIsCapturing",
                            "the per-thread default stream cannot be used for a feed, because it "
                            "is a different stream on every thread: create a stream for the feed");
    }
    const detail::stream_scope current{ordinal_, stream.get()};
    detail::require_not_captured(stream.get());
    const int owner = detail::ordinal_of(stream.get());
    if (owner == ordinal_) return;
    throw stream_of_another_device(
        cudaErrorInvalidResourceHandle, "cudaStreamGetDevice",
        "the consumer's stream belongs to device " + std::to_string(owner) +
            ", but the feed belongs to device " + std::to_string(ordinal_) +
            ": use a separate loader, transfer and stream for each device");
  }

  /// Checks a stream that has passed `require_usable`. Throws `capture_in_progress` if it is being
  /// captured. Does not check the device, which cannot change.
  void require_still_usable(stream_ref stream) const {
    const detail::stream_scope current{ordinal_, stream.get()};
    detail::require_not_captured(stream.get());
  }

  void record(event_type& event, stream_ref stream) const {
    const detail::stream_scope current{ordinal_, stream.get()};
    detail::cuda_call("cudaEventRecord",
                      [&] { return cudaEventRecord(event.get(), stream.get()); });
  }

  void wait(stream_ref stream, const event_type& event) const {
    const detail::stream_scope current{ordinal_, stream.get()};
    detail::cuda_call("cudaStreamWaitEvent",
                      [&] { return cudaStreamWaitEvent(stream.get(), event.get(), 0); });
  }

  /// Blocks until the event is complete. For an event of type `event_wait::by_host`, the thread
  /// polls and sleeps 10 to 100 us between polls. Interrupts would be slower: with one per record,
  /// a batch of 1 KiB took 22 us instead of 4 us on an H100. For other events, the thread spins.
  void synchronize(const event_type& event) const {
    synchronize(event, [](std::chrono::microseconds nap) { std::this_thread::sleep_for(nap); });
  }
  /// Blocks until the event is complete, and calls `nap(time)` between polls instead of sleeping.
  /// `nap` may return early.
  template <std::invocable<std::chrono::microseconds> Nap>
  void synchronize(const event_type& event, const Nap& nap) const {
    const detail::scoped_context context{ordinal_};
    const detail::scoped_relaxed_capture relaxed;
    // Does not poll, because polling would overwrite a pending error of the program.
    if (event.is_polled() && detail::pending_error() == cudaSuccess) return poll(event, nap);
    detail::cuda_wait("cudaEventSynchronize", [&] { return cudaEventSynchronize(event.get()); });
  }

  /// Calls `stream.synchronize()`. A default stream means the default stream of this device.
  void synchronize(stream_ref stream) const {
    detail::context_push current;  // a `stream_scope` that works even if an error is pending
    if (detail::is_default(stream.get())) {
      current.make_current_to_wait(ordinal_);
    } else {
      current.require_one(ordinal_);
    }
    stream.synchronize();
  }

  /// Blocks until all work on all streams of this device is done, even if an error of the program
  /// is pending. Invalidates stream captures. Throws `cuda_error` or a derived type.
  void synchronize() const {
    detail::context_push current;
    current.make_current_to_wait(ordinal_);
    const detail::scoped_relaxed_capture relaxed;
    detail::cuda_wait("cudaDeviceSynchronize", [] { return cudaDeviceSynchronize(); });
  }

  /// Returns true if `failure`, the exception that a call has thrown, means that no work can be
  /// running. The context is then lost, the driver is being unloaded, or the process was forked.
  [[nodiscard]] static bool is_dead_after(const std::exception_ptr& failure) noexcept {
    try {
      std::rethrow_exception(failure);
    } catch (const cuda_context_lost&) {
      return true;
    } catch (const no_cuda_driver&) {
      return true;
    } catch (const cuda_error& error) {
      return error.code() == cudaErrorCudartUnloading;
    } catch (...) {
      return false;
    }
  }

  [[nodiscard]] bool is_complete(const event_type& event) const {
    const detail::scoped_context context{ordinal_};
    const detail::scoped_relaxed_capture relaxed;
    detail::require_nothing_pending("cudaEventQuery");
    return detail::cuda_query("cudaEventQuery", [&] { return cudaEventQuery(event.get()); });
  }

  /// Returns the time between two timed events, see `times_work`. The resolution is about half a
  /// microsecond.
  [[nodiscard]] std::chrono::nanoseconds elapsed(const event_type& begin,
                                                 const event_type& end) const {
    const detail::scoped_context context{ordinal_};
    const detail::scoped_relaxed_capture relaxed;
    float milliseconds = 0.0F;
    detail::cuda_call("cudaEventElapsedTime",
                      [&] { return cudaEventElapsedTime(&milliseconds, begin.get(), end.get()); });
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<float, std::milli>{milliseconds});
  }

  /// Copies from host memory to memory of this device in stream order. Faster than `copy_async`,
  /// because the driver need not look up the addresses.
  void copy_to_device(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    copy(to, from, bytes, cudaMemcpyHostToDevice, stream);
  }

  /// Copies in stream order. The driver derives the direction from the addresses. Both ranges must
  /// stay valid until the copy is complete. The call may block if a range is in pageable memory.
  void copy_async(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    copy(to, from, bytes, cudaMemcpyDefault, stream);
  }

  /// Like `copy_to_device`, but copies from memory that is not page-locked. The driver may block.
  /// Relaxes this thread's capture mode during the call, so that a capture on another thread stays
  /// valid.
  void copy_pageable(void* to, const void* from, std::size_t bytes, stream_ref stream) const {
    const detail::scoped_context context{ordinal_};
    const detail::scoped_relaxed_capture relaxed;
    copy_to_device(to, from, bytes, stream);
  }

  /// Allocates uninitialized memory with `cudaMalloc`, or from the program's resource. Throws
  /// `out_of_memory`, and `unusable_device_memory` if the resource's memory is not usable.
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    if (bytes == 0) throw out_of_memory("device", bytes, "the size is 0");
    const detail::scoped_device current{ordinal_};
    const detail::scoped_relaxed_capture relaxed;
    if (memory_) return detail::allocate_from(*memory_, ordinal_, bytes);
    detail::require_nothing_pending("cudaMalloc");
    void* data = nullptr;
    const cudaError_t code = detail::cuda_try([&] { return cudaMalloc(&data, bytes); });
    // A driver may round up an absurdly large size and reject it as invalid.
    const bool is_absurd = code == cudaErrorInvalidValue && bytes >= std::size_t{1} << 48;
    if (code == cudaErrorMemoryAllocation || is_absurd) {
      throw out_of_memory("device", bytes, room());
    }
    if (code != cudaSuccess) detail::throw_cuda_error(code, "cudaMalloc");
    return data;
  }
  /// Frees device memory. `cudaFree` waits for all work of the device. A resource of the program
  /// may not wait, so no work may still use the memory.
  void deallocate(void* data, std::size_t bytes) const noexcept {
    if (data == nullptr) return;
    if (memory_) return detail::deallocate_to(*memory_, ordinal_, data, bytes);
    const detail::scoped_context context{ordinal_};
    const detail::scoped_relaxed_capture relaxed;
    detail::cuda_release([&] { return cudaFree(data); });
  }

  /// Allocates page-locked memory that every device can copy from asynchronously, on the NUMA node
  /// that is nearest to this device. Uses `cudaHostAlloc` up to `small_pinned_bytes`. Larger blocks
  /// are mapped in huge pages, touched by several threads and registered in pieces. If copies read
  /// at most `unit` bytes at multiples of `unit`, no copy spans two pieces; 0 means that a copy may
  /// read the whole block. If the system fails to register the memory, or if kernels would need
  /// another address than the host, uses `cudaHostAlloc` and sets `registration_failed`. Throws
  /// `pinning_failed` if that fails too.
  [[nodiscard]] pinned_block allocate_pinned(std::size_t bytes, std::size_t unit = 0) const {
    void* const data = detail::cuda_allocate_pinned(ordinal_, bytes, unit);
    return {data, true, !detail::is_pinned_as_planned(data, bytes, unit)};
  }
  /// Returns the bytes of host memory that the library has page-locked for CUDA devices in this
  /// process, including registered memory. Other threads may change the number at any time.
  [[nodiscard]] static std::size_t page_locked_bytes() noexcept {
    return detail::page_locked_bytes.load(std::memory_order_relaxed);
  }
  /// Frees pinned memory. Needs the `bytes` and `unit` of the allocation. No copy may still use the
  /// memory.
  void deallocate_pinned(void* data, std::size_t bytes, std::size_t unit = 0) const noexcept {
    detail::cuda_deallocate_pinned(ordinal_, data, bytes, unit);
  }

  /// Page-locks existing memory for all devices; `registered_memory` owns such a registration.
  /// Throws `memory_already_registered`, `registration_unsupported` if the memory is read-only or
  /// larger than 2 GB and the system does not support that, and `pinning_failed` if the system
  /// cannot lock it. Blocks.
  void register_memory(void* data, std::size_t bytes, bool read_only, std::size_t unit = 0) const {
    detail::cuda_register(ordinal_, data, bytes, read_only, unit);
  }
  /// Ends a registration. Needs the `bytes` and `unit` of the registration. No copy may still use
  /// the memory.
  void unregister_memory(void* data, std::size_t bytes, std::size_t unit = 0) const noexcept {
    detail::cuda_unregister(ordinal_, data, bytes, unit);
  }

  /// Makes this device current on the calling thread for the lifetime of the returned object.
  [[nodiscard]] detail::scoped_device enter_scope() const {
    return detail::scoped_device{ordinal_};
  }

  /// Makes this device current on the calling thread, and permanently relaxes its capture mode. The
  /// thread must not change the mode afterwards, because the library relies on it.
  void make_current() const {
    detail::cuda_call("cudaSetDevice", [&] { return cudaSetDevice(ordinal_); });
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    detail::cuda_call("cudaThreadExchangeStreamCaptureMode",
                      [&] { return cudaThreadExchangeStreamCaptureMode(&mode); });
    detail::is_relaxed_for_good() = true;
  }

 private:
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
            stream_ref stream) const {
    const detail::stream_scope current{ordinal_, stream.get()};
    detail::cuda_call("cudaMemcpyAsync",
                      [&] { return cudaMemcpyAsync(to, from, bytes, kind, stream.get()); });
  }

  /// Polls until the event is complete. If the event is already complete, polls only once.
  template <class Nap>
  static void poll(const event_type& event, const Nap& nap) {
    constexpr std::chrono::microseconds longest{100};
    std::chrono::microseconds time{10};
    std::optional<detail::precise_naps> precise;
    while (!detail::cuda_query("cudaEventQuery", [&] { return cudaEventQuery(event.get()); })) {
      if (!precise) precise.emplace();
      nap(time);
      time = (std::min)(2 * time, longest);
    }
  }

  /// Returns the free and total memory, for the message of `out_of_memory`.
  [[nodiscard]] std::string room() const {
    std::size_t free = 0;
    std::size_t total = 0;
    const cudaError_t code = detail::cuda_try([&] { return cudaMemGetInfo(&free, &total); });
    const std::string here = "device " + std::to_string(ordinal_);
    if (code != cudaSuccess) return here + " has no free memory: lower depth or batch_size";
    return here + " has " + std::to_string(free) + " free bytes of " + std::to_string(total) +
           ": lower depth or batch_size";
  }

  int ordinal_;
  std::optional<device_memory_ref> memory_;
};

static_assert(device<cuda_device>);

inline cuda_device cuda_stream_ref::device() const {
  const detail::stream_scope current{handle_};
  detail::require_not_captured(handle_);
  return cuda_device{detail::ordinal_of(handle_)};
}
inline cuda_device cuda_stream::device() const { return cuda_device{ordinal()}; }

}  // namespace PENSTOCK_ABI
}  // namespace penstock
