// SPDX-License-Identifier: BSL-1.0
#pragma once

// Up to CUDA 13.0, CCCL declares its memory resources only if this macro is defined.
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#if defined(_CUDA_MEMORY_RESOURCE) && CCCL_VERSION < 3001000
#error \
    "penstock: <cuda/memory_resource> was included without its contents: include \
<penstock/cuda/pinned_resource_ref.hpp> before it, or compile all with \
-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE"
#endif
#endif

#include <cuda_runtime_api.h>
#include <cuda/memory_resource>

#include <concepts>
#include <cstddef>
#include <memory>

#include <penstock/cuda/cuda_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/pinned_resource.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Adapts a `pinned_resource` to CCCL's `cuda::mr`. Models `cuda::mr::resource` up to CCCL 3.0, and
/// `cuda::mr::synchronous_resource` in later versions.
///
///     ps::pinned_resource<ps::cuda_device> pinned;
///     ps::pinned_resource_ref memory{pinned};
///     cuda::mr::resource_ref<cuda::mr::host_accessible, cuda::mr::device_accessible> any = memory;
///
/// The memory is `host_accessible`. With `cuda_device` it is also `device_accessible`, because
/// kernels on every GPU can access it over the bus at the host address.
///
/// Non-owning. All copies reference the same resource, which must outlive them and all allocated
/// memory, and must not be moved. CCCL references store the address of this object, which must also
/// outlive them. Two objects are equal if they reference the same resource. Thread-safe.
///
/// Not stream-ordered. All kernels and copies that use the memory must have finished before it is
/// deallocated. Each allocation is a system call for whole pages, so use the object as the upstream
/// resource of a pool.
template <device Device = cuda_device>
class pinned_resource_ref {
 public:
  /// True if kernels can access the memory.
  static constexpr bool is_device_accessible = std::same_as<Device, cuda_device>;

  /// References `resource`, which must outlive this object.
  explicit pinned_resource_ref(pinned_resource<Device>& resource) noexcept
      : resource_(std::addressof(resource)) {}

  /// Returns the resource.
  [[nodiscard]] pinned_resource<Device>& resource() const noexcept { return *resource_; }

  /// Allocates uninitialized memory with any power-of-two alignment. Throws `out_of_memory` if the
  /// allocation fails.
  [[nodiscard]] void* allocate_sync(std::size_t bytes, std::size_t alignment) const {
    return resource_->allocate(bytes, alignment);
  }
  /// Deallocates memory. The arguments must equal those of the allocation.
  void deallocate_sync(void* data, std::size_t bytes, std::size_t alignment) const noexcept {
    resource_->deallocate(data, bytes, alignment);
  }

  /// Calls `allocate_sync`. Required by CCCL 3.0.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) const {
    return allocate_sync(bytes, alignment);
  }
  /// Calls `deallocate_sync`. Required by CCCL 3.0.
  void deallocate(void* data, std::size_t bytes, std::size_t alignment) const noexcept {
    deallocate_sync(data, bytes, alignment);
  }

  /// Returns true if both objects reference the same resource.
  friend bool operator==(const pinned_resource_ref&, const pinned_resource_ref&) noexcept = default;

  /// Declares that the memory is host-accessible.
  friend constexpr void get_property(const pinned_resource_ref&,
                                     ::cuda::mr::host_accessible) noexcept {}
  /// Declares that the memory is device-accessible.
  friend constexpr void get_property(const pinned_resource_ref&,
                                     ::cuda::mr::device_accessible) noexcept
    requires(is_device_accessible)
  {}

 private:
  pinned_resource<Device>* resource_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
