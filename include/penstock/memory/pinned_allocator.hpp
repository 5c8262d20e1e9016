// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>

#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Allocates pinned memory with any power-of-two alignment. If `alignment` exceeds
/// `device_alignment`, allocates `alignment` additional bytes and stores the block address in front
/// of the returned address. Throws `out_of_memory` if the allocation fails or `alignment` is not a
/// power of two.
template <device Device>
[[nodiscard]] pinned_block allocate_aligned_pinned(const Device& device, std::size_t bytes,
                                                   std::size_t alignment) {
  if (!std::has_single_bit(alignment)) {
    throw out_of_memory("pinned", bytes, "the alignment is not a power of two");
  }
  if (alignment <= device_alignment) return device.allocate_pinned(bytes);
  if (bytes > (std::numeric_limits<std::size_t>::max)() - alignment) {
    throw out_of_memory("pinned", bytes,
                        "the size with its alignment is larger than the address space");
  }
  const pinned_block block = device.allocate_pinned(bytes + alignment);
  auto* const begin = static_cast<std::byte*>(block.data);
  // The block and the result start at different multiples of 256 bytes, so the address fits between
  // them.
  const auto past = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(begin)) % alignment;
  std::byte* const aligned = begin + (alignment - past);
  std::memcpy(aligned - sizeof begin, &begin, sizeof begin);
  return {aligned, block.pinned, block.registration_failed};
}

/// Frees memory from `allocate_aligned_pinned`. `bytes` and `alignment` must equal the values
/// passed to the allocation.
template <device Device>
void deallocate_aligned_pinned(const Device& device, void* data, std::size_t bytes,
                               std::size_t alignment) noexcept {
  if (alignment <= device_alignment || data == nullptr) {
    device.deallocate_pinned(data, bytes);
    return;
  }
  std::byte* begin = nullptr;
  std::memcpy(&begin, static_cast<std::byte*>(data) - sizeof begin, sizeof begin);
  device.deallocate_pinned(begin, bytes + alignment);
}

}  // namespace detail

/// An allocator of pinned memory for standard containers, as in `std::vector<float,
/// pinned_allocator<float, D>>`. Each allocation is a system call for whole pages, so reserve once,
/// or use a pool with `pinned_resource`.
///
/// Memory is aligned to 256 bytes, or to `alignof(T)` if that is larger. `allocate` throws
/// `out_of_memory`, and `std::bad_array_new_length` if the size overflows. Two allocators are equal
/// if their devices can free each other's memory, which is true for all allocators of the same
/// device type. Thread-safe.
template <class T, device Device = cpu_device>
class pinned_allocator {
 public:
  using value_type = T;

  pinned_allocator() = default;
  /// Creates an allocator of memory that is pinned for `device`.
  explicit pinned_allocator(const Device& device) noexcept : device_(device) {}
  /// Creates an allocator of the same memory for another element type.
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

  /// Returns the device for which the memory is pinned.
  [[nodiscard]] const Device& device() const noexcept { return device_; }

  template <class U>
  friend bool operator==(const pinned_allocator&, const pinned_allocator<U, Device>&) noexcept {
    return true;
  }

 private:
  // An allocation of 0 elements also needs a unique address.
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
