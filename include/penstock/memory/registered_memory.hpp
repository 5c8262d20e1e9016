// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/detail/huge_pages.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A device that can page-lock existing memory:
///
/// - `register_memory(data, bytes, read_only)` locks the memory for asynchronous copies. If it
/// throws, nothing is locked. If `read_only` is true, the pages may be mapped read-only;
/// - `unregister_memory(data, bytes)` unlocks the same range.
template <class D>
concept registering_device = device<D> && requires(const D& d, void* data, std::size_t bytes) {
  d.register_memory(data, bytes, true);
  { d.unregister_memory(data, bytes) } noexcept;
};

namespace detail {

/// A device that registers large ranges in pieces, and therefore needs the maximum size of a copy.
template <class D>
concept registers_by_unit = requires(const D& d, void* data, std::size_t bytes, std::size_t unit) {
  d.register_memory(data, bytes, true, unit);
  { d.unregister_memory(data, bytes, unit) } noexcept;
};

/// Page-locks `memory` after moving it to huge pages if the kernel allows it (see
/// `registered_memory`). Returns the number of bytes in huge pages. Propagates errors from the
/// device.
template <registering_device Device>
std::size_t lock_memory(const Device& device, std::span<std::byte> memory, bool read_only,
                        std::size_t unit) {
  const std::size_t huge = huge_page_size();
  use_huge_pages(memory, huge);
  if constexpr (registers_by_unit<Device>) {
    device.register_memory(memory.data(), memory.size(), read_only, unit);
  } else {
    device.register_memory(memory.data(), memory.size(), read_only);
  }
  // Counts the huge pages after the registration, because the registration touches all pages.
  return bytes_in_huge_pages(memory, huge);
}

/// Unlocks memory locked by `lock_memory` with the same `unit`.
template <registering_device Device>
void unlock_memory(const Device& device, std::span<std::byte> memory, std::size_t unit) noexcept {
  if constexpr (registers_by_unit<Device>) {
    device.unregister_memory(memory.data(), memory.size(), unit);
  } else {
    device.unregister_memory(memory.data(), memory.size());
  }
}

}  // namespace detail

/// Page-locks existing memory, such as a mapped file or a vector, for the lifetime of this object.
///
///     std::vector<float> table = ...;
///     ps::registered_memory locked{ps::cuda_device{0}, std::as_writable_bytes(std::span{table})};
///
/// Owns the registration but not the memory. The memory must not be moved or freed before this
/// object is destroyed. All copies from or to the memory must have finished before the destruction.
/// Locks whole pages, so several registered ranges must be page-aligned. Register at start-up,
/// because registration takes about as long as one page fault per page. Move-only. An empty range
/// is allowed and is not registered.
///
/// Some machines cannot lock more than 2 or 4 GB in one call. Pass `unit` if each copy is at most
/// `unit` bytes long and starts at a multiple of `unit` from the first byte. CUDA then registers
/// ranges above 1 GiB in pieces. Pieces begin and end at page boundaries, and at unit boundaries if
/// possible. CUDA rejects copies that span two pieces. If `unit` is 0, the range is one piece.
///
/// Private anonymous memory, such as a large vector, is first moved to transparent huge pages if
/// the kernel allows it. The contents are preserved. The kernel copies the pages, which takes about
/// as long as copying the memory. Mapped files, shared memory and memory marked with
/// `MADV_NOHUGEPAGE` are not moved.
///
/// Throws `out_of_memory` if the system cannot lock the memory. On CUDA, also throws
/// `memory_already_registered` if part of the range is already registered, and
/// `registration_unsupported` if the device does not support read-only memory, or the machine does
/// not support a piece of more than 2 GB.
template <registering_device Device>
class registered_memory {
 public:
  /// Page-locks `memory` for `device`. The memory must outlive this object.
  registered_memory(const Device& device, std::span<std::byte> memory, std::size_t unit = 0)
      : registered_memory(device, memory.data(), memory.size(), false, unit) {}

  /// Page-locks memory that no thread may write to while it is registered. The pages may be mapped
  /// read-only.
  registered_memory(const Device& device, std::span<const std::byte> memory, std::size_t unit = 0)
      : registered_memory(device, const_cast<std::byte*>(memory.data()), memory.size(), true,
                          unit) {}

  registered_memory(registered_memory&& other) noexcept
      : device_(other.device_),
        memory_(std::exchange(other.memory_, {})),
        unit_(other.unit_),
        huge_page_bytes_(std::exchange(other.huge_page_bytes_, 0)),
        read_only_(other.read_only_) {}
  registered_memory& operator=(registered_memory&& other) noexcept {
    if (this != &other) {
      release();
      device_ = other.device_;
      memory_ = std::exchange(other.memory_, {});
      unit_ = other.unit_;
      huge_page_bytes_ = std::exchange(other.huge_page_bytes_, 0);
      read_only_ = other.read_only_;
    }
    return *this;
  }
  ~registered_memory() { release(); }

  /// Returns the registered memory. Empty after a move.
  [[nodiscard]] std::span<const std::byte> memory() const noexcept { return memory_; }
  /// Returns the number of locked bytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size(); }
  /// Returns the number of locked bytes that were in huge pages directly after the registration. A
  /// huge page counts only if all of it is locked. Returns 0 if the kernel did not provide huge
  /// pages, or the memory is not private and anonymous.
  [[nodiscard]] std::size_t huge_page_bytes() const noexcept { return huge_page_bytes_; }
  /// Returns true if the memory was passed as a span of const elements.
  [[nodiscard]] bool read_only() const noexcept { return read_only_; }

 private:
  registered_memory(const Device& device, std::byte* data, std::size_t bytes, bool read_only,
                    std::size_t unit)
      : device_(device), memory_(data, bytes), unit_(unit), read_only_(read_only) {
    if (bytes == 0) return;
    huge_page_bytes_ = detail::lock_memory(device_, memory_, read_only, unit);
  }

  void release() noexcept {
    if (memory_.empty()) return;
    detail::unlock_memory(device_, memory_, unit_);
    memory_ = {};
  }

  Device device_;
  std::span<std::byte> memory_;
  std::size_t unit_;
  std::size_t huge_page_bytes_ = 0;
  bool read_only_;
};

static_assert(registering_device<cpu_device>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
