// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <penstock/cuda/detail/cuda_call.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Refers to a CUDA stream of anyone's, and owns nothing: the stream must outlive its use. Comes from a
/// `cudaStream_t`, and from whatever has a `get()` that gives one, implicitly; not from a number or
/// `nullptr`, which would silently mean the default stream. That one is `cudaStreamLegacy` or
/// `cudaStreamPerThread`, by name.
class cuda_stream_ref {
 public:
  cuda_stream_ref() = delete;
  cuda_stream_ref(int) = delete;
  cuda_stream_ref(std::nullptr_t) = delete;
  /// Refers to a stream of the caller's.
  cuda_stream_ref(cudaStream_t handle) noexcept : handle_(handle) {}  // NOLINT: implicit
  /// Refers to the stream of an object whose `get()` gives one.
  template <class Owner>
    requires(!std::same_as<std::remove_cvref_t<Owner>, cuda_stream_ref> &&
             requires(const Owner& owner) {
               { owner.get() } -> std::convertible_to<cudaStream_t>;
             })
  cuda_stream_ref(const Owner& owner) : handle_(owner.get()) {}  // NOLINT: implicit

  /// The native handle.
  [[nodiscard]] cudaStream_t get() const noexcept { return handle_; }
  friend bool operator==(cuda_stream_ref, cuda_stream_ref) noexcept = default;

 private:
  cudaStream_t handle_;
};

/// Owns a CUDA stream that does not wait for the default stream (`cudaStreamNonBlocking`). Move-only;
/// its destruction waits for the stream's work, so memory that the work uses may go right behind it.
class cuda_stream {
 public:
  /// Throws what `cuda_error` and its children say.
  explicit cuda_stream(int ordinal) {
    const detail::scoped_device current{ordinal};
    const detail::scoped_relaxed_capture relaxed;
    detail::cuda_call("cudaStreamCreateWithFlags",
                      [&] { return cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking); });
  }

  /// Takes ownership of a stream that exists.
  [[nodiscard]] static cuda_stream from_native_handle(cudaStream_t handle) noexcept {
    return cuda_stream{handle};
  }
  static cuda_stream from_native_handle(int) = delete;
  static cuda_stream from_native_handle(std::nullptr_t) = delete;

  cuda_stream(cuda_stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  cuda_stream& operator=(cuda_stream&& other) noexcept {
    cuda_stream old{std::exchange(handle_, std::exchange(other.handle_, nullptr))};
    return *this;
  }
  ~cuda_stream() {
    if (handle_ == nullptr) return;
    const detail::scoped_relaxed_capture relaxed;
    detail::cuda_release([&] { return cudaStreamSynchronize(handle_); });
    detail::cuda_release([&] { return cudaStreamDestroy(handle_); });
  }

  /// The stream; null after `release` and for a moved-from object.
  [[nodiscard]] cudaStream_t get() const noexcept { return handle_; }
  /// Gives the stream away: the caller destroys it.
  [[nodiscard]] cudaStream_t release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  explicit cuda_stream(cudaStream_t handle) noexcept : handle_(handle) {}

  cudaStream_t handle_ = nullptr;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
