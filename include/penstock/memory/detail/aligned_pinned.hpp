// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What every device gives; above it, memory is taken with room to move in.
inline constexpr std::size_t device_alignment = 256;

/// Pinned memory with any alignment that is a power of two. Above `device_alignment` it takes
/// `alignment` bytes more, and the block's own address stands in front of what is handed out.
/// Throws `out_of_memory`.
template <device Device>
[[nodiscard]] pinned_block allocate_aligned_pinned(const Device& device, std::size_t bytes,
                                                   std::size_t alignment) {
  if (!std::has_single_bit(alignment)) {
    throw out_of_memory("pinned", bytes, "the alignment is not a power of two");
  }
  if (alignment <= device_alignment) return device.allocate_pinned(bytes);
  if (bytes > (std::numeric_limits<std::size_t>::max)() - alignment) {
    throw out_of_memory("pinned", bytes, "with its alignment it is larger than the address space");
  }
  const pinned_block block = device.allocate_pinned(bytes + alignment);
  auto* const begin = static_cast<std::byte*>(block.data);
  // The block is aligned to 256 bytes and the step is at least that long: the address fits in
  // front.
  const auto past = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(begin)) % alignment;
  std::byte* const aligned = begin + (alignment - past);
  std::memcpy(aligned - sizeof begin, &begin, sizeof begin);
  return {aligned, block.pinned, block.registration_refused};
}

/// With the arguments of the allocation.
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
}  // namespace PENSTOCK_ABI
}  // namespace penstock
