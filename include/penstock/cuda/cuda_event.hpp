// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

struct event_handle {
  using native_type = cudaEvent_t;
  static void destroy(cudaEvent_t handle) noexcept {
    cuda_release([&] { return cudaEventDestroy(handle); });
  }
};

}  // namespace detail

/// Owns a CUDA event, without timing unless requested. Move-only. May be destroyed while waits or
/// records are pending.
class cuda_event : public detail::unique_handle<detail::event_handle> {
 public:
  /// No event; may only be assigned to.
  cuda_event() = default;
  /// An event of this device. A thread that waits for it in `cuda_device::synchronize` polls and
  /// sleeps, or spins if the event is for streams only. No event uses interrupts
  /// (`cudaEventBlockingSync`). Throws what `cuda_error` and its children say.
  explicit cuda_event(int ordinal, event_wait waits = event_wait::by_host)
      : unique_handle(made(ordinal, waits), ordinal), is_polled_(waits == event_wait::by_host) {}

  /// Takes ownership of an existing event of the thread's current device.
  [[nodiscard]] static cuda_event from_native_handle(cudaEvent_t handle) noexcept {
    return cuda_event{handle, detail::current_ordinal()};
  }
  static cuda_event from_native_handle(int) = delete;
  static cuda_event from_native_handle(std::nullptr_t) = delete;

  /// Whether waiting threads poll and sleep.
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
