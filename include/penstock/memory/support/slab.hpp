// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <span>
#include <utility>

#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/registered_memory.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The memory kind of a slab.
enum class memory_kind {
  device,              ///< device memory
  pinned,              ///< host memory for asynchronous copies
  pageable,            ///< ordinary host memory; copies are slower, and may be synchronous on a GPU
  pinned_or_pageable,  ///< pinned if possible, otherwise pageable
  registered,          ///< existing host memory, page-locked for the lifetime of the slab
};

/// A device that allocates pinned memory in pieces, and therefore needs the maximum size of a copy.
template <class D>
concept pins_by_unit = requires(const D& d, void* data, std::size_t bytes, std::size_t unit) {
  { d.allocate_pinned(bytes, unit) } -> std::same_as<pinned_block>;
  { d.deallocate_pinned(data, bytes, unit) } noexcept;
};

/// Returns the total size of `count` slots of `slot_bytes` bytes each. Throws `out_of_memory` for
/// `kind` memory if the size overflows.
[[nodiscard]] inline std::size_t bytes_of_slots(memory_kind kind, std::size_t slot_bytes,
                                                std::size_t count) {
  constexpr auto max = (std::numeric_limits<std::size_t>::max)();
  if (slot_bytes <= max / count) return slot_bytes * count;
  throw out_of_memory(
      kind == memory_kind::device ? "device" : "pinned", max,
      str_cat({count, " slots of ", slot_bytes,
               " bytes exceed the address space: use fewer slots or smaller batches"}));
}

/// A contiguous memory block, allocated at construction and freed at destruction. May be divided
/// into slots of equal size. Aligned to at least 256 bytes, unless the caller owns the memory.
/// Move-only. All use of the memory must have ended before the destruction.
template <device Device>
class slab {
 public:
  /// Allocates `bytes` bytes, which must not be 0. `unit` is the slot size, or 0 without slots.
  /// Copies from pinned memory must start at a multiple of `unit` and be at most `unit` bytes long.
  /// Throws `out_of_memory` if the allocation fails.
  slab(const Device& device, std::size_t bytes, memory_kind kind, std::size_t unit = 0)
      : device_(device), bytes_(bytes), unit_(unit), kind_(kind) {
    switch (kind) {
      case memory_kind::device:
        data_ = static_cast<std::byte*>(device_.allocate(bytes));
        break;
      case memory_kind::pinned:
        take_pinned();
        break;
      case memory_kind::pageable:
        take_pageable();
        break;
      case memory_kind::registered:  // allocated by the other constructor
        break;
      case memory_kind::pinned_or_pageable:
        try {
          take_pinned();
        } catch (const out_of_memory&) {
          take_pageable();
        }
        break;
    }
  }

  /// Allocates `count` slots of `slot_bytes` bytes. Throws `out_of_memory` if the allocation fails.
  slab(const Device& device, memory_kind kind, std::size_t slot_bytes, std::size_t count)
      : slab(device, bytes_of_slots(kind, slot_bytes, count), kind, slot_bytes) {}
  /// Page-locks `memory`, in huge pages if the kernel allows it. The caller owns the memory, which
  /// must outlive the slab. `unit` has the same meaning as for allocated memory. Throws the same
  /// errors as `registered_memory`.
  slab(const Device& device, std::span<std::byte> memory, std::size_t unit)
    requires registering_device<Device>
      : device_(device),
        data_(memory.data()),
        bytes_(memory.size()),
        unit_(unit),
        kind_(memory_kind::registered),
        pinned_(true),
        huge_page_bytes_(lock_memory(device_, memory, false, unit_)) {}

  slab(slab&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        unit_(other.unit_),
        kind_(other.kind_),
        pinned_(other.pinned_),
        registration_failed_(other.registration_failed_),
        huge_page_bytes_(other.huge_page_bytes_),
        is_leaked_(other.is_leaked_) {}
  slab& operator=(slab&&) = delete;

  ~slab() {
    if (data_ == nullptr) return;
    if (is_on_host()) detail::allow(data_, bytes_);
    if (is_leaked_) return;
    switch (kind_) {
      case memory_kind::device:
        device_.deallocate(data_, bytes_);
        break;
      case memory_kind::pinned:
        if constexpr (pins_by_unit<Device>) {
          device_.deallocate_pinned(data_, bytes_, unit_);
        } else {
          device_.deallocate_pinned(data_, bytes_);
        }
        break;
      case memory_kind::pageable:
        cpu_device{}.deallocate(data_, bytes_);
        break;
      case memory_kind::registered:
        if constexpr (registering_device<Device>) unlock_memory(device_, {data_, bytes_}, unit_);
        break;
      case memory_kind::pinned_or_pageable:  // replaced by the constructor
        break;
    }
  }

  /// Leaks the memory and reports the leak on stderr, because work that cannot be waited for may
  /// still use the memory. The owner may use the memory until the slab is destroyed.
  [[gnu::cold]] void leak() noexcept {
    if (std::exchange(is_leaked_, true)) return;
    std::fprintf(
        stderr,
        "penstock: %zu bytes of %s memory are leaked, because the device failed twice to wait for "
        "the work that uses them. Look for the first device error of the program\n",
        bytes_, kind_ == memory_kind::device ? "device" : "host");
  }

  /// Returns the address of the slab.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// Returns the address of a slot.
  [[nodiscard]] std::byte* slot(std::size_t number) const noexcept {
    return data_ + number * unit_;
  }
  /// Fills an unused slot with the pattern of free memory, and lets AddressSanitizer report each
  /// access to the slot until `allow`. Does nothing unless the build is checked.
  void forbid(std::size_t number) noexcept {
    if (!is_on_host()) return;
    poison(slot(number), unit_);
    detail::forbid(slot(number), unit_);
  }
  /// Allows access to the slot after `forbid`. Fills the slot with the pattern of free memory, even
  /// if it was not forbidden.
  void allow(std::size_t number) noexcept {
    if (!is_on_host()) return;
    detail::allow(slot(number), unit_);
    poison(slot(number), unit_);
  }
  /// Returns the size in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns true if the memory is page-locked, which pinned memory of a GPU always is. The CPU
  /// device also uses memory that the system failed to lock, in which case this returns false.
  [[nodiscard]] bool pinned() const noexcept { return pinned_; }
  /// Returns `pinned_block::registration_failed`.
  [[nodiscard]] bool registration_failed() const noexcept { return registration_failed_; }
  /// Returns `registered_memory::huge_page_bytes` for memory of the caller, and otherwise 0.
  [[nodiscard]] std::size_t huge_page_bytes() const noexcept { return huge_page_bytes_; }

 private:
  /// Returns true if the calling thread may access the memory. Device memory is accessible if the
  /// streams of the device run host functions.
  [[nodiscard]] bool is_on_host() const noexcept {
    return kind_ != memory_kind::device || runs_host_functions<typename Device::stream_ref>;
  }
  void take_pinned() {
    pinned_block block;
    if constexpr (pins_by_unit<Device>) {
      block = device_.allocate_pinned(bytes_, unit_);
    } else {
      block = device_.allocate_pinned(bytes_);
    }
    data_ = static_cast<std::byte*>(block.data);
    pinned_ = block.pinned;
    registration_failed_ = block.registration_failed;
    kind_ = memory_kind::pinned;
  }
  void take_pageable() {
    data_ = static_cast<std::byte*>(cpu_device{}.allocate_pageable(bytes_));
    kind_ = memory_kind::pageable;
  }

  Device device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  std::size_t unit_;
  memory_kind kind_;
  bool pinned_ = false;
  bool registration_failed_ = false;
  std::size_t huge_page_bytes_ = 0;
  bool is_leaked_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
