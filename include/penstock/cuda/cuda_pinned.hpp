// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/cuda/detail/cuda_context.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Pinned memory up to this size is taken by one `cudaHostAlloc`; larger memory is mapped in huge
/// pages, touched by several threads and registered, which is several times faster.
inline constexpr std::size_t small_pinned_bytes = std::size_t{64} << 20;

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

/// The plan for `bytes` bytes out of which copies take `unit` bytes at a multiple of `unit`; a unit of
/// 0 is all of it. CUDA refuses a copy that lies in two registrations, so the borders of chunks are
/// multiples of both the unit and the page.
[[nodiscard]] inline pinned_plan plan_pinned(std::size_t bytes, std::size_t unit,
                                             const pinned_sizes& sizes) noexcept {
  if (bytes <= sizes.mapped_above) return {};
  const std::size_t length = (bytes + sizes.page - 1) / sizes.page * sizes.page;
  const std::size_t units = sizes.page / std::gcd(unit, sizes.page);  // that fill whole pages
  if (unit == 0 || unit >= length / units) return {length, length};
  const std::size_t step = unit * units;
  return {length, (std::min)(length, (std::max)(step, sizes.chunk / step * step))};
}

// ---- the host's NUMA nodes ----------------------------------------------------------------------

/// What the calling thread, and threads that it starts, allocate comes from `node` for a scope, if the
/// node has room. Best effort: nothing happens for a node below 0, where the program has a policy of
/// its own (numactl), and where these calls are forbidden, as they are in many containers.
class scoped_node {
 public:
  explicit scoped_node(int node) noexcept {
    constexpr std::size_t word_bits = 8 * sizeof(unsigned long);
    const auto bit = static_cast<std::size_t>(node);
    if (node < 0 || bit >= bits) return;
    int mode = preferred;
    if (::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) != 0 || mode != none)
      return;
    std::array<unsigned long, bits / word_bits> nodes{};
    nodes[bit / word_bits] = 1UL << (bit % word_bits);
    changed_ = ::syscall(SYS_set_mempolicy, preferred, nodes.data(), bits) == 0;
  }
  scoped_node(scoped_node&&) = delete;
  ~scoped_node() {
    if (changed_) ::syscall(SYS_set_mempolicy, none, nullptr, 0UL);
  }

 private:
  static constexpr unsigned long bits = 1024;  // the kernel's own limit
  static constexpr int none = 0;               // MPOL_DEFAULT
  static constexpr int preferred = 1;          // MPOL_PREFERRED

  bool changed_ = false;
};

/// The host's NUMA node next to the device; -1 where there is none or the driver does not know.
[[nodiscard]] inline int nearest_node(int ordinal) {
  require_nothing_pending("cudaDeviceGetAttribute");
  int node = -1;
  const cudaError_t code =
      cuda_try([&] { return cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ordinal); });
  if (code == cudaErrorInvalidValue) return -1;  // a driver older than the question
  if (code != cudaSuccess) throw_cuda_error(code, "cudaDeviceGetAttribute");
  return node;
}

// ---- pages --------------------------------------------------------------------------------------

/// How many threads touch `length` bytes: a core zeroes some GB/s, the memory of a node several times
/// that; few of them saturate it.
[[nodiscard]] inline std::size_t touching_threads(std::size_t length) noexcept {
  constexpr std::size_t most = 8;
  constexpr std::size_t least_bytes = std::size_t{16} << 20;
  const std::size_t cores = (std::max)(1U, std::thread::hardware_concurrency());
  return std::clamp<std::size_t>(length / least_bytes, 1, (std::min)(most, cores));
}

/// Writes to every page on `threads` threads, the calling one among them, so that the pages are there
/// before they are registered: the driver would fetch them one by one on one thread.
inline void touch_pages(std::byte* data, std::size_t length, std::size_t page,
                        std::size_t threads) noexcept {
  const std::size_t pages = length / page;
  const auto touch = [=](std::size_t part) noexcept {
    for (std::size_t at = part * pages / threads; at < (part + 1) * pages / threads; ++at) {
      *static_cast<volatile std::byte*>(data + at * page) = std::byte{0};
    }
  };
  std::vector<std::thread> helpers;
  std::size_t next = 1;
  try {
    helpers.reserve(threads - 1);
    for (; next < threads; ++next) helpers.emplace_back(touch, next);
  } catch (...) {  // a process that may start no thread touches alone
  }
  touch(0);
  for (; next < threads; ++next) touch(next);
  for (auto& helper : helpers) helper.join();
}

/// Owns anonymous pages in huge pages where the system has them; aligned to 2 MiB, untouched.
class page_mapping {
 public:
  /// `asked` is what the message of `out_of_memory` says.
  page_mapping(std::size_t length, std::size_t asked) : length_(length) {
    constexpr std::size_t huge = std::size_t{2} << 20;
    // Room to move in. Where the sum wraps, the length alone is more than any address space.
    const std::size_t room = (std::max)(length, length + huge);
    void* const mapped =
        ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      throw out_of_memory("pinned", asked,
                          std::string{std::strerror(errno)} +
                              ": take fewer slots (prefetch) or a smaller batch_size");
    }
    auto* const begin = static_cast<std::byte*>(mapped);
    const std::size_t before =
        (huge - static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(begin)) % huge) % huge;
    data_ = begin + before;
    if (before != 0) ::munmap(begin, before);
    ::munmap(data_ + length, huge - before);
    ::madvise(data_, length, MADV_HUGEPAGE);
    // A forked child must not share pages that a device reads: this process would go on writing to
    // copies of them.
    ::madvise(data_, length, MADV_DONTFORK);
  }
  page_mapping(page_mapping&&) = delete;
  ~page_mapping() {
    if (data_ != nullptr) ::munmap(data_, length_);
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::byte* release() noexcept { return std::exchange(data_, nullptr); }

 private:
  std::size_t length_;
  std::byte* data_ = nullptr;
};

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
                              cudaHostRegisterPortable);
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
