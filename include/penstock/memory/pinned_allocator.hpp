// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>

#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/detail/aligned_pinned.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// An allocator of pinned memory for standard containers: `std::vector<float,
/// pinned_allocator<float, D>>`. One system call and whole pages for each allocation: reserve once,
/// or pool with `pinned_resource`.
///
/// Memory is aligned to 256 bytes, or to `alignof(T)` if that is more. `allocate` throws
/// `out_of_memory`, and `std::bad_array_new_length` when the size overflows. Two allocators are
/// equal when their devices could free each other's memory: always, for one device type.
/// Thread-safe.
template <class T, device Device = cpu_device>
class pinned_allocator {
 public:
  using value_type = T;

  pinned_allocator() = default;
  /// Memory that is pinned for `device`.
  explicit pinned_allocator(const Device& device) noexcept : device_(device) {}
  /// An allocator of the same memory for elements of another type.
  template <class U>
  pinned_allocator(const pinned_allocator<U, Device>& other) noexcept  // NOLINT: rebinds
      : device_(other.device()) {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > (std::numeric_limits<std::size_t>::max)() / sizeof(T)) {
      throw std::bad_array_new_length{};
    }
    return static_cast<T*>(
        detail::allocate_aligned_pinned(device_, bytes_of(count), alignof(T)).data);
  }
  void deallocate(T* data, std::size_t count) noexcept {
    detail::deallocate_aligned_pinned(device_, data, bytes_of(count), alignof(T));
  }

  /// The device whose copy engine reads this memory.
  [[nodiscard]] const Device& device() const noexcept { return device_; }

  template <class U>
  friend bool operator==(const pinned_allocator&, const pinned_allocator<U, Device>&) noexcept {
    return true;
  }

 private:
  // An allocation of nothing has an address too.
  static std::size_t bytes_of(std::size_t count) noexcept {
    return count == 0 ? 1 : count * sizeof(T);
  }

  Device device_{};
};

static_assert(std::is_same_v<std::allocator_traits<pinned_allocator<char>>::rebind_alloc<double>,
                             pinned_allocator<double>>,
              "containers allocate other types than their elements");

}  // namespace PENSTOCK_ABI
}  // namespace penstock
