// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <utility>

#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/cuda/detail/cuda_context.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

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
