// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <type_traits>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Thrown if a user-provided memory resource returns memory that device slots cannot use, because
/// it is not aligned to 256 bytes or belongs to another device. The memory has been returned to the
/// resource.
class [[gnu::visibility("default")]] unusable_device_memory : public error {
 public:
  using error::error;
};

namespace detail {

/// A resource with the synchronous functions of `cuda::mr` in CCCL 3.1 and later.
template <class R>
concept allocates_sync = requires(R& from, void* data, std::size_t count) {
  { from.allocate_sync(count, count) } -> std::same_as<void*>;
  from.deallocate_sync(data, count, count);
};

/// A resource with the synchronous functions of `cuda::mr` in CCCL 3.0, which match
/// `std::pmr::memory_resource`.
template <class R>
concept allocates = requires(R& from, void* data, std::size_t count) {
  { from.allocate(count, count) } -> std::same_as<void*>;
  from.deallocate(data, count, count);
};

}  // namespace detail

/// A reference to a user-provided device memory resource, from which a `cuda_device` allocates
/// instead of calling `cudaMalloc`. Implicitly convertible from any object with the functions
///
/// - `void* allocate(std::size_t bytes, std::size_t alignment)`, and
/// - `deallocate(void* data, std::size_t bytes, std::size_t alignment)`,
///
/// or with the same functions under the names `allocate_sync` and `deallocate_sync`, which are
/// preferred. Examples are the resources and references of CCCL's `cuda::mr`, RMM resources, and
/// custom classes.
///
/// The functions are synchronous. All streams may use memory from `allocate` immediately, and no
/// stream uses memory passed to `deallocate`. A stream-ordered resource needs a wrapper that
/// synchronizes the stream (see docs/existing_code.md). `allocate` reports an error by an exception
/// or a null pointer. `deallocate` must not throw. During both functions, the device is current on
/// the calling thread. Any thread may call them, and calls from several loops may overlap.
///
/// Non-owning. The resource must outlive all allocated memory.
class device_memory_ref {
 public:
  /// References `resource`, which cannot be a temporary object.
  template <class Resource>
    requires(!std::same_as<std::remove_const_t<Resource>, device_memory_ref> &&
             (detail::allocates_sync<Resource> || detail::allocates<Resource>))
  device_memory_ref(Resource& resource) noexcept  // NOLINT: implicit, as a resource is passed
      : resource_(const_cast<void*>(static_cast<const void*>(&resource))),
        functions_(&functions_of<Resource>) {}

  /// Allocates memory. Propagates errors from the resource.
  [[nodiscard]] void* allocate(std::size_t bytes, std::size_t alignment) const {
    return functions_->allocate(resource_, bytes, alignment);
  }
  /// Deallocates memory. The arguments must equal those of the allocation.
  void deallocate(void* data, std::size_t bytes, std::size_t alignment) const noexcept {
    functions_->deallocate(resource_, data, bytes, alignment);
  }

 private:
  struct functions {
    void* (*allocate)(void* resource, std::size_t bytes, std::size_t alignment);
    void (*deallocate)(void* resource, void* data, std::size_t bytes,
                       std::size_t alignment) noexcept;
  };

  template <class Resource>
  static constexpr functions functions_of{
      [](void* resource, std::size_t bytes, std::size_t alignment) -> void* {
        auto& from = *static_cast<Resource*>(resource);
        if constexpr (detail::allocates_sync<Resource>) {
          return from.allocate_sync(bytes, alignment);
        } else {
          return from.allocate(bytes, alignment);
        }
      },
      [](void* resource, void* data, std::size_t bytes, std::size_t alignment) noexcept {
        auto& to = *static_cast<Resource*>(resource);
        if constexpr (detail::allocates_sync<Resource>) {
          to.deallocate_sync(data, bytes, alignment);
        } else {
          to.deallocate(data, bytes, alignment);
        }
      }};

  void* resource_;
  const functions* functions_;
};

namespace detail {

/// Clears the thread's last-error slot at the end of a scope. No error is pending when the scope
/// begins (see `scoped_device`). Therefore, any error at its end comes from the resource, which has
/// already reported the failure by its result.
struct resource_error_scope {
  resource_error_scope() = default;
  resource_error_scope(resource_error_scope&&) = delete;
  ~resource_error_scope() { static_cast<void>(cudaGetLastError()); }
};

/// Allocates memory of device `ordinal` from `memory`. Throws `out_of_memory` if the resource
/// fails, and `unusable_device_memory`.
[[nodiscard]] inline void* allocate_from(const device_memory_ref& memory, int ordinal,
                                         std::size_t bytes) {
  const resource_error_scope scope;
  void* data = nullptr;
  try {
    data = memory.allocate(bytes, device_alignment);
  } catch (const error&) {
    throw;
  } catch (const std::exception& error) {
    throw out_of_memory(
        "device", bytes,
        str_cat({"the program's memory resource threw \"", error.what(),
                 "\": lower depth or batch_size, or give the resource more memory"}));
  }
  if (data == nullptr) {
    throw out_of_memory("device", bytes,
                        "the program's memory resource returned a null pointer: lower depth or "
                        "batch_size, or give the resource more memory");
  }
  const auto past =
      static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(data)) % device_alignment;
  cudaPointerAttributes known{};
  const bool is_known =
      cuda_try([&] { return cudaPointerGetAttributes(&known, data); }) == cudaSuccess;
  const bool is_elsewhere =
      is_known && known.type == cudaMemoryTypeDevice && known.device != ordinal;
  if (past == 0 && !is_elsewhere) return data;
  memory.deallocate(data, bytes, device_alignment);
  if (past != 0) {
    throw unusable_device_memory(
        str_cat({"the program's memory resource returned ", bytes, " bytes at an address ", past,
                 " bytes past a multiple of ", device_alignment,
                 ": return memory with the requested alignment"}));
  }
  throw unusable_device_memory(
      str_cat({"the program's memory resource returned memory of device ", known.device,
               ", but the slots are for device ", ordinal, ": use a resource of that device"}));
}

/// Returns memory to the resource `memory`, with the device `ordinal` current if possible.
inline void deallocate_to(const device_memory_ref& memory, int ordinal, void* data,
                          std::size_t bytes) noexcept {
  context_push current;
  try {
    current.make_current_to_wait(ordinal);
  } catch (...) {  // The context is lost, or the driver is being unloaded.
  }
  const scoped_relaxed_capture relaxed;
  memory.deallocate(data, bytes, device_alignment);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
