// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <string>

#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/cuda/detail/cuda_context.hpp>
#include <penstock/cuda/detail/host_node.hpp>
#include <penstock/cuda/detail/host_pages.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Pinned memory up to this size is taken by one `cudaHostAlloc`; larger memory is mapped in huge
/// pages, touched by several threads and registered, which is several times faster.
inline constexpr std::size_t small_pinned_bytes = std::size_t{64} << 20;

}  // namespace detail

/// The memory, or a part of it, is page-locked already: by the program, by another library, or by
/// another `registered_memory`.
class [[gnu::visibility("default")]] memory_already_registered : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// The device or the driver can't page-lock memory in the way that was asked for.
class [[gnu::visibility("default")]] registration_unsupported : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

namespace detail {

/// The sizes that a plan goes by; other values are for tests.
struct pinned_sizes {
  std::size_t mapped_above = small_pinned_bytes;
  /// What one registration takes about: its call costs nothing beside its work, and the locks that
  /// the system holds meanwhile come free in between.
  std::size_t chunk = std::size_t{256} << 20;
  std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));  // 4 or 64 KiB
};

/// How pinned memory is taken. A pure function of its arguments: what frees memory computes it anew
/// and needs no table.
struct pinned_plan {
  std::size_t length = 0;  ///< bytes that are mapped, whole pages; 0: `cudaHostAlloc`
  std::size_t chunk = 0;   ///< bytes of a registration, the last one may be shorter

  [[nodiscard]] bool is_mapped() const noexcept { return length != 0; }
  [[nodiscard]] std::size_t chunks() const noexcept {
    return is_mapped() ? (length - 1) / chunk + 1 : 0;
  }
  [[nodiscard]] std::size_t offset(std::size_t which) const noexcept { return which * chunk; }
  [[nodiscard]] std::size_t bytes(std::size_t which) const noexcept {
    return (std::min)(chunk, length - offset(which));
  }
};

/// The plan for `bytes` bytes out of which copies take `unit` bytes at a multiple of `unit`; a unit
/// of 0 is all of it. CUDA refuses a copy that lies in two registrations, so the borders of chunks
/// are multiples of both the unit and the page.
[[nodiscard]] inline pinned_plan plan_pinned(std::size_t bytes, std::size_t unit,
                                             const pinned_sizes& sizes) noexcept {
  if (bytes <= sizes.mapped_above) return {};
  const std::size_t length = (bytes + sizes.page - 1) / sizes.page * sizes.page;
  const std::size_t units = sizes.page / std::gcd(unit, sizes.page);  // that fill whole pages
  if (unit == 0 || unit >= length / units) return {length, length};
  const std::size_t step = unit * units;
  return {length, (std::min)(length, (std::max)(step, sizes.chunk / step * step))};
}

// ---- page-locking -------------------------------------------------------------------------------

/// Throws `out_of_memory` where the system refuses to lock pages, and else the type of the error.
[[noreturn]] inline void throw_not_pinned(cudaError_t code, std::size_t bytes,
                                          const cuda_site& site) {
  switch (code) {
    case cudaErrorMemoryAllocation:
    case cudaErrorOperatingSystem:
    case cudaErrorNotSupported:
    case cudaErrorInvalidValue:  // so do some kernels refuse pages that are perfectly in order
      throw out_of_memory("pinned", bytes,
                          std::string{site.call} + " gave " + cudaGetErrorName(code) +
                              ": raise the limits on locked memory (ulimit -l) and on the "
                              "container's memory, take fewer slots (prefetch) or a smaller "
                              "batch_size, or go on without page-locking (pageable_fallback)");
    default:
      throw_cuda_error(code, site);
  }
}

/// Unregisters the first `chunks` chunks. Each one once, whatever the others give.
inline void unregister_chunks(const pinned_plan& plan, std::byte* data,
                              std::size_t chunks) noexcept {
  for (std::size_t which = 0; which < chunks; ++which) {
    cuda_release([&] { return cudaHostUnregister(data + plan.offset(which)); });
  }
}

/// One after the other: what gains from several threads, the pages' faults, is over by now.
inline void register_chunks(const pinned_plan& plan, std::byte* data, std::size_t bytes) {
  for (std::size_t which = 0; which < plan.chunks(); ++which) {
    const cudaError_t code = cuda_try([&] {
      return cudaHostRegister(data + plan.offset(which), plan.bytes(which),
                              cudaHostRegisterPortable | cudaHostRegisterMapped);
    });
    if (code == cudaSuccess) continue;
    unregister_chunks(plan, data, which);
    throw_not_pinned(code, bytes, "cudaHostRegister");
  }
}

/// Pinned host memory for the device `ordinal`: see `cuda_device::allocate_pinned`.
[[nodiscard]] inline void* cuda_allocate_pinned(int ordinal, std::size_t bytes, std::size_t unit,
                                                const pinned_sizes& sizes = {}) {
  if (bytes == 0 || bytes > (std::numeric_limits<std::size_t>::max)() - sizes.page) {
    throw out_of_memory("pinned", bytes, "the size is 0 or larger than the address space");
  }
  const pinned_plan plan = plan_pinned(bytes, unit, sizes);
  const scoped_device current{ordinal};
  const scoped_relaxed_capture relaxed;
  const scoped_node policy{
      nearest_node(ordinal)};  // for the driver's pages too: it takes them here
  if (!plan.is_mapped()) {
    void* data = nullptr;
    const cudaError_t code =
        cuda_try([&] { return cudaHostAlloc(&data, bytes, cudaHostAllocPortable); });
    if (code != cudaSuccess) throw_not_pinned(code, bytes, "cudaHostAlloc");
    return data;
  }
  page_mapping pages{plan.length, bytes};
  touch_pages(pages.data(), plan.length, sizes.page, touching_threads(plan.length));
  register_chunks(plan, pages.data(), bytes);
  return pages.release();
}

/// The arguments must be those of the allocation. No copy may still use the memory.
inline void cuda_deallocate_pinned(int ordinal, void* data, std::size_t bytes, std::size_t unit,
                                   const pinned_sizes& sizes = {}) noexcept {
  if (data == nullptr) return;
  const scoped_context context{ordinal};
  const scoped_relaxed_capture relaxed;
  const pinned_plan plan = plan_pinned(bytes, unit, sizes);
  if (!plan.is_mapped()) {
    cuda_release([&] { return cudaFreeHost(data); });
    return;
  }
  unregister_chunks(plan, static_cast<std::byte*>(data), plan.chunks());
  ::munmap(data, plan.length);
}

/// Page-locks memory that exists: see `cuda_device::register_memory`.
inline void cuda_register(int ordinal, void* data, std::size_t bytes, bool read_only) {
  const scoped_device current{ordinal};
  const scoped_relaxed_capture relaxed;
  unsigned int flags = cudaHostRegisterPortable;
  if (read_only) {
    int supported = 0;
    cuda_call("cudaDeviceGetAttribute", [&] {
      return cudaDeviceGetAttribute(&supported, cudaDevAttrHostRegisterReadOnlySupported, ordinal);
    });
    if (supported == 0) {
      throw registration_unsupported(
          cudaErrorNotSupported, "cudaHostRegister",
          "device " + std::to_string(ordinal) +
              " can't page-lock read-only memory: pass writable memory (a file mapped "
              "MAP_PRIVATE with PROT_WRITE is copied page by page then), or read into pinned "
              "slots");
    }
    flags |= cudaHostRegisterReadOnly;
  }
  const cudaError_t code = cuda_try([&] { return cudaHostRegister(data, bytes, flags); });
  if (code == cudaSuccess) return;
  switch (code) {
    case cudaErrorHostMemoryAlreadyRegistered:
      throw_as<memory_already_registered>(code, "cudaHostRegister",
                                          "memory is page-locked already, at least in part",
                                          "register it once, and end that registration first");
    case cudaErrorNotSupported:
      throw_as<registration_unsupported>(code, "cudaHostRegister",
                                         "memory of this kind can't be page-locked",
                                         "read it into pinned slots instead");
    case cudaErrorMemoryAllocation:
    case cudaErrorOperatingSystem:
      throw out_of_memory("pinned", bytes,
                          std::string{"cudaHostRegister gave "} + cudaGetErrorName(code) +
                              ": raise the limits on locked memory (ulimit -l) and on the "
                              "container's memory, or register less");
    default:
      throw_cuda_error(code, "cudaHostRegister");
  }
}

inline void cuda_unregister(int ordinal, void* data) noexcept {
  const scoped_context context{ordinal};
  const scoped_relaxed_capture relaxed;
  cuda_release([&] { return cudaHostUnregister(data); });
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
