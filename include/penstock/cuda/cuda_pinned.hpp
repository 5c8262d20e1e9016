// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/core/support/lock_limits.hpp>
#include <penstock/cuda/cuda_error.hpp>
#include <penstock/cuda/detail/cuda_call.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

namespace detail {

/// Prefers the NUMA node `node` for allocations by the calling thread and threads that it starts,
/// for the lifetime of this object. Best effort. Has no effect if `node` is negative, if the
/// program sets a memory policy (numactl), or if the system calls are forbidden, as in many
/// containers.
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
  static constexpr unsigned long bits = 1024;  // maximum supported by the kernel
  static constexpr int none = 0;               // MPOL_DEFAULT
  static constexpr int preferred = 1;          // MPOL_PREFERRED

  bool changed_ = false;
};

/// Returns the number of threads that should touch `length` bytes. A core zeroes a few GB/s, and a
/// few cores saturate the memory of a node.
[[nodiscard]] inline std::size_t touching_threads(std::size_t length) noexcept {
  constexpr std::size_t max = 8;
  constexpr std::size_t min_bytes = std::size_t{16} << 20;
  const std::size_t cores = (std::max)(1U, std::thread::hardware_concurrency());
  return std::clamp<std::size_t>(length / min_bytes, 1, (std::min)(max, cores));
}

/// Writes to every page, on `threads` threads including the calling thread. Otherwise the driver
/// would fault in the pages one by one on a single thread when it registers them.
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
  } catch (...) {  // No more threads can be started, so the calling thread touches the rest.
  }
  touch(0);
  for (; next < threads; ++next) touch(next);
  for (auto& helper : helpers) helper.join();
}

/// Owns an untouched anonymous mapping that is aligned to 2 MiB, in huge pages if available.
class page_mapping {
 public:
  /// Maps `length` bytes. Throws `out_of_memory` with a message about `requested` bytes.
  page_mapping(std::size_t length, std::size_t requested) : length_(length) {
    constexpr std::size_t huge = std::size_t{2} << 20;
    // Reserves room for the alignment. If the sum overflows, `length` alone exceeds any address
    // space, so the call fails anyway.
    const std::size_t room = (std::max)(length, length + huge);
    void* const mapped =
        ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      throw out_of_memory("pinned", requested,
                          std::string{std::strerror(errno)} + ": lower prefetch or batch_size");
    }
    auto* const begin = static_cast<std::byte*>(mapped);
    const std::size_t before =
        (huge - static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(begin)) % huge) % huge;
    data_ = begin + before;
    if (before != 0) ::munmap(begin, before);
    ::munmap(data_ + length, huge - before);
    ::madvise(data_, length, MADV_HUGEPAGE);
    // A forked child must not share pages that a device reads. Otherwise copy-on-write could give
    // this process a different page than the device reads.
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

/// The maximum size of a block allocated by `cudaHostAlloc`, which is the size of a huge page.
/// Larger blocks are mapped in huge pages, touched (by several threads from 32 MiB) and registered.
/// On the host of an H100, this was 2.3 to 7.7 times as fast for 4 MiB to 1 GiB.
inline constexpr std::size_t small_pinned_bytes = std::size_t{2} << 20;

}  // namespace detail

/// Thrown if the system cannot page-lock memory for a CUDA device. The message contains the bytes
/// requested, the bytes that the library has page-locked, the limits of the system, and the options
/// that would help. The thread's last-error slot does not contain the error.
class [[gnu::visibility("default")]] pinning_failed : public out_of_memory {
 public:
  /// Creates the error for a request of `bytes` bytes, when `locked` bytes were page-locked.
  pinning_failed(std::size_t bytes, std::string_view reason, std::size_t locked,
                 std::string_view advice)
      : out_of_memory("pinned", bytes,
                      detail::str_cat({reason, "; the library has page-locked ", locked, " bytes, ",
                                       detail::lock_limits(), ": ", advice})),
        locked_(locked) {}
  /// Returns the number of bytes that the library had page-locked for CUDA devices in this process.
  /// If no other code page-locks memory, the system limit is at least this number, and less than
  /// `locked() + bytes()`.
  [[nodiscard]] std::size_t locked() const noexcept { return locked_; }

 private:
  std::size_t locked_;
};

/// Thrown if a part of the memory has already been page-locked by the program, by another library,
/// or by another `registered_memory`.
class [[gnu::visibility("default")]] memory_already_registered : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

/// Thrown if the device or the driver does not support the requested kind of page-locking.
class [[gnu::visibility("default")]] registration_unsupported : public cuda_error {
 public:
  using cuda_error::cuda_error;
};

namespace detail {

/// The parameters of a plan. Only tests change the defaults.
struct pinned_sizes {
  std::size_t mapped_above = small_pinned_bytes;
  /// The approximate size of a registration. Large enough to amortize the call, and small enough
  /// that the kernel releases its locks in between.
  std::size_t chunk = std::size_t{256} << 20;
  std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));  // 4 or 64 KiB
};

/// The plan for registering memory, in pieces of `chunk` bytes. The first and the last piece may be
/// shorter. The plan depends only on the arguments, so the code that ends the registrations
/// computes the plan again instead of storing it.
struct registration_plan {
  std::size_t length = 0;  ///< in bytes; whole pages if memory is mapped; 0 for `cudaHostAlloc`
  std::size_t first = 0;   ///< size of the first piece in bytes
  std::size_t chunk = 0;

  [[nodiscard]] bool is_mapped() const noexcept { return length != 0; }
  [[nodiscard]] std::size_t pieces() const noexcept {
    return first == length ? 1 : (length - first - 1) / chunk + 2;
  }
  [[nodiscard]] std::size_t offset(std::size_t which) const noexcept {
    return which == 0 ? 0 : first + (which - 1) * chunk;
  }
  [[nodiscard]] std::size_t bytes(std::size_t which) const noexcept {
    return which == 0 ? first : (std::min)(chunk, length - offset(which));
  }
};

/// Returns the plan for `bytes` bytes if copies read `unit` bytes at multiples of `unit`. If `unit`
/// is 0, a copy may read the whole block. CUDA rejects a copy that spans two registrations, so
/// boundaries are multiples of both the unit and the page size.
[[nodiscard]] inline registration_plan plan_pinned(std::size_t bytes, std::size_t unit,
                                                   const pinned_sizes& sizes) noexcept {
  if (bytes <= sizes.mapped_above) return {};
  const std::size_t length = (bytes + sizes.page - 1) / sizes.page * sizes.page;
  const std::size_t units = sizes.page / std::gcd(unit, sizes.page);  // in whole pages
  if (unit == 0 || unit >= length / units) return {length, length, length};
  const std::size_t step = unit * units;
  const std::size_t chunk = (std::min)(length, (std::max)(step, sizes.chunk / step * step));
  return {length, chunk, chunk};
}

/// The maximum size of a registration if the memory is divisible. Some machines cannot register 2
/// or 4 GB.
inline constexpr std::size_t max_registration = std::size_t{1} << 30;

/// The system may reject a registration above this size with an out-of-memory error, even if enough
/// memory is available.
inline constexpr std::size_t doubtful_registration = std::size_t{256} << 30;

/// Returns the plan for `bytes` bytes at `address` if copies read at most `unit` bytes at multiples
/// of `unit`. A page can be registered only once, so boundaries are also page boundaries. The plan
/// is a single piece if no such boundaries exist or `unit` is 0.
[[nodiscard]] inline registration_plan plan_registration(std::uintptr_t address, std::size_t bytes,
                                                         std::size_t unit, std::size_t page,
                                                         std::size_t largest) noexcept {
  const registration_plan whole{bytes, bytes, bytes};
  if (unit == 0 || bytes <= largest) return whole;
  const std::size_t units = page / std::gcd(unit, page);  // in whole pages
  if (unit >= bytes / units) return whole;
  const std::size_t step = unit * units;
  std::size_t border = unit;
  while (border < step && (address + border) % page != 0) border += unit;
  if ((address + border) % page != 0) return whole;
  const std::size_t steps = largest > border ? (largest - border) / step : 0;
  return {bytes, border + steps * step, (std::max)(step, largest / step * step)};
}

// ---- page-locking -------------------------------------------------------------------------------

/// The number of bytes that the library has page-locked in this process, for messages. Relaxed
/// ordering suffices, because no other data depends on this count.
inline std::atomic<std::size_t> page_locked_bytes{0};

inline void record_locked(std::size_t bytes) noexcept {
  page_locked_bytes.fetch_add(bytes, std::memory_order_relaxed);
}
inline void record_unlocked(std::size_t bytes) noexcept {
  page_locked_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}
[[noreturn, gnu::cold]] inline void throw_pinning_failed(std::size_t bytes,
                                                         const std::string& reason,
                                                         std::string_view advice) {
  throw pinning_failed(bytes, reason, page_locked_bytes.load(std::memory_order_relaxed), advice);
}

/// Returns true if the system could not lock the pages, in which case another method or a smaller
/// size may succeed.
[[nodiscard]] inline bool is_pinning_failure(cudaError_t code) noexcept {
  return code == cudaErrorMemoryAllocation || code == cudaErrorOperatingSystem ||
         code == cudaErrorNotSupported || code == cudaErrorNotPermitted ||
         code == cudaErrorInvalidValue;  // returned by some kernels for valid pages
}

/// Throws `pinning_failed` if the system could not lock the pages, and otherwise the exception
/// type for `code`. `before` describes earlier attempts.
[[noreturn]] inline void throw_not_pinned(cudaError_t code, std::size_t bytes,
                                          const cuda_site& site, const std::string& before = {}) {
  if (!is_pinning_failure(code)) throw_cuda_error(code, site);
  throw_pinning_failed(
      bytes, before + site.call + " gave " + cudaGetErrorName(code),
      "raise the limits on locked memory (ulimit -l) and on the container's memory, lower prefetch "
      "or batch_size, or continue with fewer slots (memory.on_budget_exceeded) or without "
      "page-locking (memory.pageable_fallback)");
}

/// The way in which a block was allocated: mapped and registered as planned, or with
/// `cudaHostAlloc`. Stored after the last byte of the block.
enum class pinned_by : std::uint64_t {
  registration = 0x7265676973746572U,
  allocation = 0x616c6c6f63617465U,
};

/// Returns the size of a block including its `pinned_by` word.
[[nodiscard]] constexpr std::size_t with_note(std::size_t bytes) noexcept {
  return bytes + sizeof(pinned_by);
}

inline void record_pinned(void* data, std::size_t bytes, pinned_by how) noexcept {
  std::memcpy(static_cast<std::byte*>(data) + bytes, &how, sizeof how);
}

/// Returns true if a block was allocated as planned, and false if the registration failed.
[[nodiscard]] inline bool is_pinned_as_planned(const void* data, std::size_t bytes,
                                               std::size_t unit,
                                               const pinned_sizes& sizes = {}) noexcept {
  if (!plan_pinned(bytes, unit, sizes).is_mapped()) return true;
  pinned_by how{};
  std::memcpy(&how, static_cast<const std::byte*>(data) + bytes, sizeof how);
  return how == pinned_by::registration;
}

/// Unregisters the first `pieces` pieces of the plan. Ignores errors.
inline void unregister_pieces(const registration_plan& plan, std::byte* data,
                              std::size_t pieces) noexcept {
  for (std::size_t which = 0; which < pieces; ++which) {
    cuda_release([&] { return cudaHostUnregister(data + plan.offset(which)); });
  }
}

/// Registers the pieces of a plan one by one. If a registration fails, unregisters the earlier
/// pieces, returns the error, and sets `which` to the index of the failed piece.
[[nodiscard]] inline cudaError_t register_pieces(const registration_plan& plan, std::byte* data,
                                                 unsigned flags, std::size_t& which) {
  for (which = 0; which < plan.pieces(); ++which) {
    const cudaError_t code = cuda_try(
        [&] { return cudaHostRegister(data + plan.offset(which), plan.bytes(which), flags); });
    if (code == cudaSuccess) continue;
    unregister_pieces(plan, data, which);
    return code;
  }
  return cudaSuccess;
}

/// Allocates memory pinned for all devices with `cudaHostAlloc`. `before` describes failed attempts
/// for the error message.
[[nodiscard]] inline void* cuda_host_alloc(std::size_t requested, std::size_t bytes,
                                           const std::string& before = {}) {
  void* data = nullptr;
  const cudaError_t code =
      cuda_try([&] { return cudaHostAlloc(&data, bytes, cudaHostAllocPortable); });
  if (code != cudaSuccess) throw_not_pinned(code, requested, "cudaHostAlloc", before);
  record_locked(requested);
  return data;
}

/// Returns the mapped length of a block. The `pinned_by` word is stored in the unused part of the
/// last page, if any, and may lie outside the registration.
[[nodiscard]] inline std::size_t mapped_length(std::size_t bytes,
                                               const pinned_sizes& sizes) noexcept {
  return (with_note(bytes) + sizes.page - 1) / sizes.page * sizes.page;
}

/// Returns true if kernels on device `ordinal` can access registered memory at its host address, as
/// with `cudaHostAlloc`. Throws `cuda_error` or a derived type.
[[nodiscard]] inline bool reaches_registered(int ordinal) {
  return device_attribute(ordinal, cudaDevAttrCanUseHostPointerForRegisteredMem) != 0;
}

/// Allocates pinned host memory for the device `ordinal` (see `cuda_device::allocate_pinned`).
[[nodiscard]] inline void* cuda_allocate_pinned(int ordinal, std::size_t bytes, std::size_t unit,
                                                const pinned_sizes& sizes = {}) {
  if (bytes == 0 || bytes > (std::numeric_limits<std::size_t>::max)() - 2 * sizes.page) {
    throw out_of_memory("pinned", bytes, "the size is 0 or larger than the address space");
  }
  const registration_plan plan = plan_pinned(bytes, unit, sizes);
  const scoped_device current{ordinal};
  const scoped_relaxed_capture relaxed;
  // The preferred node also applies to pages that the driver allocates.
  const scoped_node policy{nearest_node(ordinal)};
  if (!plan.is_mapped()) return cuda_host_alloc(bytes, bytes);
  std::string before;
  if (reaches_registered(ordinal)) {
    page_mapping pages{mapped_length(bytes, sizes), bytes};
    touch_pages(pages.data(), plan.length, sizes.page, touching_threads(plan.length));
    std::size_t which = 0;
    // Registers the pieces one by one. Several threads would only help with page faults, and the
    // pages are already present.
    const cudaError_t code = register_pieces(
        plan, pages.data(), cudaHostRegisterPortable | cudaHostRegisterMapped, which);
    if (code == cudaSuccess) {
      record_pinned(pages.data(), bytes, pinned_by::registration);
      record_locked(bytes);
      return pages.release();
    }
    // If confidential computing, a sandbox or a limit forbids registration, the driver may still be
    // able to allocate pinned memory.
    if (!is_pinning_failure(code)) throw_cuda_error(code, "cudaHostRegister");
    before = std::string{"cudaHostRegister gave "} + cudaGetErrorName(code) + " and ";
  }
  void* const data = cuda_host_alloc(bytes, with_note(bytes), before);
  record_pinned(data, bytes, pinned_by::allocation);
  return data;
}

/// Frees pinned memory. The arguments must equal those of the allocation. All copies from or to the
/// memory must have finished.
inline void cuda_deallocate_pinned(int ordinal, void* data, std::size_t bytes, std::size_t unit,
                                   const pinned_sizes& sizes = {}) noexcept {
  if (data == nullptr) return;
  const scoped_context context{ordinal};
  const scoped_relaxed_capture relaxed;
  record_unlocked(bytes);
  const registration_plan plan = plan_pinned(bytes, unit, sizes);
  if (!plan.is_mapped() || !is_pinned_as_planned(data, bytes, unit, sizes)) {
    cuda_release([&] { return cudaFreeHost(data); });
    return;
  }
  unregister_pieces(plan, static_cast<std::byte*>(data), plan.pieces());
  ::munmap(data, mapped_length(bytes, sizes));
}

/// Returns the plan for existing memory on this system.
[[nodiscard]] inline registration_plan plan_registration(const void* data, std::size_t bytes,
                                                         std::size_t unit) noexcept {
  return plan_registration(reinterpret_cast<std::uintptr_t>(data), bytes, unit, pinned_sizes{}.page,
                           max_registration);
}

/// Page-locks existing memory (see `cuda_device::register_memory`).
inline void cuda_register(int ordinal, void* data, std::size_t bytes, bool read_only,
                          std::size_t unit = 0) {
  const scoped_device current{ordinal};
  const scoped_relaxed_capture relaxed;
  unsigned int flags = cudaHostRegisterPortable;
  if (read_only) {
    if (device_attribute(ordinal, cudaDevAttrHostRegisterReadOnlySupported) == 0) {
      throw registration_unsupported(
          cudaErrorNotSupported, "cudaHostRegister",
          "device " + std::to_string(ordinal) +
              " cannot page-lock read-only memory: pass writable memory (a file mapped with "
              "MAP_PRIVATE and PROT_WRITE is then copied page by page), or read into pinned slots");
    }
    flags |= cudaHostRegisterReadOnly;
  }
  const registration_plan plan = plan_registration(data, bytes, unit);
  std::size_t which = 0;
  const cudaError_t code = register_pieces(plan, static_cast<std::byte*>(data), flags, which);
  if (code == cudaSuccess) return record_locked(bytes);
  switch (code) {
    case cudaErrorInvalidValue:
      if (plan.bytes(which) <= max_registration) throw_cuda_error(code, "cudaHostRegister");
      throw_as<registration_unsupported>(
          code, "cudaHostRegister", "this machine cannot page-lock that much memory in one call",
          "specify the size of one copy (the unit of registered_memory), so that the memory is "
          "locked in pieces");
    case cudaErrorHostMemoryAlreadyRegistered:
      throw_as<memory_already_registered>(
          code, "cudaHostRegister", "the memory is already page-locked, at least in part",
          "register it only once, or end the other registration first");
    case cudaErrorNotSupported:
      throw_as<registration_unsupported>(code, "cudaHostRegister",
                                         "memory of this kind cannot be page-locked",
                                         "read it into pinned slots instead");
    case cudaErrorMemoryAllocation:
    case cudaErrorOperatingSystem:
      if (plan.bytes(which) > doubtful_registration) {
        throw_pinning_failed(
            bytes,
            std::string{"cudaHostRegister gave "} + cudaGetErrorName(code) +
                " for more than 256 GiB in one call",
            "specify the size of one copy (the unit of registered_memory), so that the memory is "
            "locked in pieces, or raise the limits on locked memory (ulimit -l)");
      }
      throw_pinning_failed(bytes, std::string{"cudaHostRegister gave "} + cudaGetErrorName(code),
                           "raise the limits on locked memory (ulimit -l) and on the container's "
                           "memory, or register less");
    default:
      throw_cuda_error(code, "cudaHostRegister");
  }
}

inline void cuda_unregister(int ordinal, void* data, std::size_t bytes, std::size_t unit) noexcept {
  const scoped_context context{ordinal};
  const scoped_relaxed_capture relaxed;
  const registration_plan plan = plan_registration(data, bytes, unit);
  unregister_pieces(plan, static_cast<std::byte*>(data), plan.pieces());
  record_unlocked(bytes);
}

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
