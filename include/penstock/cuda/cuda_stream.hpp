// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

class cuda_device;

/// A non-owning reference to a CUDA stream, which must outlive this object. Implicitly convertible
/// from `cudaStream_t` and from objects whose `get()` returns a stream. Not convertible from an
/// integer or `nullptr`, which would silently mean the default stream. Use `cudaStreamLegacy` or
/// `cudaStreamPerThread` for a default stream. A null handle becomes one of these handles,
/// depending on how the translation unit is compiled.
class cuda_stream_ref {
 public:
  cuda_stream_ref() = delete;
  cuda_stream_ref(int) = delete;
  cuda_stream_ref(std::nullptr_t) = delete;
  /// References a stream.
  template <bool NullIsPerThread = detail::null_is_per_thread>
  cuda_stream_ref(cudaStream_t handle) noexcept  // NOLINT: implicit
      : handle_(detail::named_stream<NullIsPerThread>(handle)) {}
  /// References the stream returned by `get()` of an object.
  template <class Owner, bool NullIsPerThread = detail::null_is_per_thread>
    requires(!std::same_as<std::remove_cvref_t<Owner>, cuda_stream_ref> &&
             requires(const Owner& owner) {
               { owner.get() } -> std::convertible_to<cudaStream_t>;
             })
  cuda_stream_ref(const Owner& owner)  // NOLINT: implicit
      : handle_(detail::named_stream<NullIsPerThread>(owner.get())) {}

  /// Returns the native handle, never null.
  [[nodiscard]] cudaStream_t get() const noexcept { return handle_; }
  /// Returns the device of the stream, or the device of the calling thread for a default stream.
  /// Requires `cuda_device.hpp`. Throws `cuda_error` or a derived type, such as
  /// `capture_in_progress` if the stream is being captured. The capture remains valid.
  [[nodiscard]] cuda_device device() const;

  /// Blocks until all work queued on the stream is done. Throws `cuda_context_lost` if a kernel has
  /// faulted, and `capture_in_progress` if the stream is being captured. The capture remains valid.
  void synchronize() const {
    const detail::stream_scope current{handle_};
    detail::require_not_captured(handle_);
    const detail::scoped_relaxed_capture relaxed;
    detail::cuda_wait("cudaStreamSynchronize", [&] { return cudaStreamSynchronize(handle_); });
  }

  /// Returns true if all work queued on the stream is done. Does not block. Throws the same errors
  /// as `synchronize`.
  [[nodiscard]] bool is_complete() const {
    const detail::stream_scope current{handle_};
    detail::require_not_captured(handle_);
    const detail::scoped_relaxed_capture relaxed;
    detail::require_nothing_pending("cudaStreamQuery");
    return detail::cuda_query("cudaStreamQuery", [&] { return cudaStreamQuery(handle_); });
  }

  friend bool operator==(cuda_stream_ref, cuda_stream_ref) noexcept = default;

 private:
  cudaStream_t handle_;
};

namespace detail {

struct stream_handle {
  using native_type = cudaStream_t;
  static void destroy(cudaStream_t handle) noexcept {
    cuda_release([&] { return cudaStreamSynchronize(handle); });
    cuda_release([&] { return cudaStreamDestroy(handle); });
  }
};

}  // namespace detail

/// Owns a CUDA stream that does not synchronize with the default stream (`cudaStreamNonBlocking`).
/// Move-only. The destructor waits for the work on the stream, so memory that the work uses may be
/// freed afterwards.
class cuda_stream : public detail::unique_handle<detail::stream_handle> {
 public:
  /// Creates a stream of the device `ordinal`. Kernel blocks of a high-priority stream are
  /// scheduled before waiting blocks of other streams. Throws `cuda_error` or a derived type.
  explicit cuda_stream(int ordinal, stream_priority how = stream_priority::normal)
      : unique_handle(made(ordinal, how), ordinal) {}

  /// Takes ownership of an existing stream on the current device.
  [[nodiscard]] static cuda_stream from_native_handle(cudaStream_t handle) noexcept {
    return cuda_stream{handle, detail::current_ordinal()};
  }
  static cuda_stream from_native_handle(int) = delete;
  static cuda_stream from_native_handle(std::nullptr_t) = delete;

  /// Returns the device of the stream. For an adopted handle, returns the device that was current
  /// at the adoption. Can be called while the stream is being captured.
  [[nodiscard]] cuda_device device() const;
  /// Waits for all work on the stream (see `cuda_stream_ref::synchronize`).
  void synchronize() const { cuda_stream_ref{*this}.synchronize(); }
  /// Returns true if all work on the stream is done (see `cuda_stream_ref::is_complete`). Does not
  /// block.
  [[nodiscard]] bool is_complete() const { return cuda_stream_ref{*this}.is_complete(); }

 private:
  cuda_stream(cudaStream_t handle, int ordinal) noexcept : unique_handle(handle, ordinal) {}

  [[nodiscard]] static cudaStream_t made(int ordinal, stream_priority how) {
    const detail::scoped_device current{ordinal};
    const detail::scoped_relaxed_capture relaxed;
    cudaStream_t handle = nullptr;
    if (how == stream_priority::highest) {
      int min = 0;
      int greatest = 0;
      detail::cuda_call("cudaDeviceGetStreamPriorityRange",
                        [&] { return cudaDeviceGetStreamPriorityRange(&min, &greatest); });
      detail::cuda_call("cudaStreamCreateWithPriority", [&] {
        return cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, greatest);
      });
      return handle;
    }
    detail::cuda_call("cudaStreamCreateWithFlags",
                      [&] { return cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking); });
    return handle;
  }
};

namespace detail {

struct event_handle {
  using native_type = cudaEvent_t;
  static void destroy(cudaEvent_t handle) noexcept {
    cuda_release([&] { return cudaEventDestroy(handle); });
  }
};

}  // namespace detail

/// Owns a CUDA event. Events record times only if requested. Move-only. May be destroyed while
/// waits or records are pending.
class cuda_event : public detail::unique_handle<detail::event_handle> {
 public:
  /// Creates an empty object, which supports only assignment and destruction.
  cuda_event() = default;
  /// Creates an event of the device `ordinal`. `cuda_device::synchronize` waits for the event by
  /// polling and sleeping, or by spinning if the event is for streams only. Events never use
  /// interrupts (`cudaEventBlockingSync`). Throws `cuda_error` or a derived type.
  explicit cuda_event(int ordinal, event_wait waits = event_wait::by_host)
      : unique_handle(made(ordinal, waits), ordinal), is_polled_(waits == event_wait::by_host) {}

  /// Takes ownership of an existing event on the current device.
  [[nodiscard]] static cuda_event from_native_handle(cudaEvent_t handle) noexcept {
    return cuda_event{handle, detail::current_ordinal()};
  }
  static cuda_event from_native_handle(int) = delete;
  static cuda_event from_native_handle(std::nullptr_t) = delete;

  /// Returns true if waiting threads poll and sleep.
  [[nodiscard]] bool is_polled() const noexcept { return is_polled_; }

 private:
  cuda_event(cudaEvent_t handle, int ordinal) noexcept : unique_handle(handle, ordinal) {}

  [[nodiscard]] static cudaEvent_t made(int ordinal, event_wait waits) {
    const unsigned flags = waits == event_wait::timed ? cudaEventDefault : cudaEventDisableTiming;
    const detail::scoped_device current{ordinal};
    const detail::scoped_relaxed_capture relaxed;
    cudaEvent_t handle = nullptr;
    detail::cuda_call("cudaEventCreateWithFlags",
                      [&] { return cudaEventCreateWithFlags(&handle, flags); });
    return handle;
  }

  bool is_polled_ = false;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
