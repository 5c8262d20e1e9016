// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory_resource>

#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/pinned_allocator.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A `std::pmr::memory_resource` of pinned memory. Each allocation is a system call for whole
/// pages, so use the resource as the upstream of a pool: `std::pmr::synchronized_pool_resource
/// pool{&pinned}`.
///
/// Supports all power-of-two alignments. An alignment above 256 bytes requires `alignment`
/// additional bytes, which `bytes()` does not count. (The pools of libstdc++ request blocks aligned
/// to their size.) `allocate` throws `out_of_memory`. All copies from or to the memory must have
/// finished before it is deallocated. Thread-safe.
template <device Device = cpu_device>
class pinned_resource final : public std::pmr::memory_resource {
 public:
  pinned_resource() = default;
  /// Creates a resource of memory that is pinned for `device`.
  explicit pinned_resource(const Device& device) : device_(device) {}

  /// Returns the device for which the memory is pinned.
  [[nodiscard]] const Device& device() const noexcept { return device_; }
  /// Returns the number of bytes currently allocated.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return bytes_.load(std::memory_order_relaxed);
  }
  /// Returns the total size in bytes of all allocations so far that the system failed to
  /// page-lock, and that are therefore pageable.
  [[nodiscard]] std::size_t pageable_bytes() const noexcept {
    return pageable_bytes_.load(std::memory_order_relaxed);
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    const pinned_block block =
        detail::allocate_aligned_pinned(device_, bytes == 0 ? 1 : bytes, alignment);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (!block.pinned) pageable_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return block.data;
  }

  void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) noexcept override {
    detail::deallocate_aligned_pinned(device_, data, bytes == 0 ? 1 : bytes, alignment);
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  Device device_{};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::size_t> pageable_bytes_{0};
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
