// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Refers to a CUDA event of anyone's, and owns nothing: the event must outlive its use.
class cuda_event_ref {
 public:
  cuda_event_ref() = delete;
  cuda_event_ref(int) = delete;
  cuda_event_ref(std::nullptr_t) = delete;
  /// Refers to an event of the caller's.
  cuda_event_ref(cudaEvent_t handle) noexcept : handle_(handle) {}  // NOLINT: implicit
  /// Refers to the event of an object whose `get()` gives one.
  template <class Owner>
    requires(!std::same_as<std::remove_cvref_t<Owner>, cuda_event_ref> &&
             requires(const Owner& owner) {
               { owner.get() } -> std::convertible_to<cudaEvent_t>;
             })
  cuda_event_ref(const Owner& owner) : handle_(owner.get()) {}  // NOLINT: implicit

  /// The native handle.
  [[nodiscard]] cudaEvent_t get() const noexcept { return handle_; }
  friend bool operator==(cuda_event_ref, cuda_event_ref) noexcept = default;

 private:
  cudaEvent_t handle_;
};

/// Owns a CUDA event without timing. Move-only. Destroying it while a stream still waits for it, or it
/// for a stream, is allowed.
class cuda_event {
 public:
  /// No event: only to be assigned to.
  cuda_event() = default;
  /// An event of this device. A thread that waits for it sleeps, or spins where it is for streams
  /// alone: when an event that threads sleep on is recorded, the driver has to be told by an interrupt
  /// once the GPU gets there. Throws what `cuda_error` and its children say.
  explicit cuda_event(int ordinal, event_wait waits = event_wait::by_host) {
    const unsigned sleeps = waits == event_wait::by_host ? cudaEventBlockingSync : 0U;
    const detail::scoped_device current{ordinal};
    const detail::scoped_relaxed_capture relaxed;
    detail::cuda_call("cudaEventCreateWithFlags", [&] {
      return cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming | sleeps);
    });
  }

  /// Takes ownership of an event that exists.
  [[nodiscard]] static cuda_event from_native_handle(cudaEvent_t handle) noexcept {
    cuda_event taken;
    taken.handle_ = handle;
    return taken;
  }
  static cuda_event from_native_handle(int) = delete;
  static cuda_event from_native_handle(std::nullptr_t) = delete;

  cuda_event(cuda_event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  cuda_event& operator=(cuda_event&& other) noexcept {
    cuda_event old = from_native_handle(std::exchange(handle_, nullptr));
    handle_ = std::exchange(other.handle_, nullptr);
    return *this;
  }
  ~cuda_event() {
    if (handle_ != nullptr) detail::cuda_release([&] { return cudaEventDestroy(handle_); });
  }

  /// The event; null after `release`, for a moved-from and for a default-made object.
  [[nodiscard]] cudaEvent_t get() const noexcept { return handle_; }
  /// Gives the event away: the caller destroys it.
  [[nodiscard]] cudaEvent_t release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  cudaEvent_t handle_ = nullptr;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
