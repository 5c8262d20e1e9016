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

/// The kind of memory of a slab.
enum class memory_kind {
  device,    ///< device memory
  pinned,    ///< host memory for asynchronous copies
  pageable,  ///< ordinary host memory: slower to copy from; on a GPU such a copy may be synchronous
  pinned_or_pageable,  ///< pinned if possible, else pageable
  registered,          ///< the caller's host memory, page-locked while the slab exists
};

/// A device that allocates pinned memory in pieces, and therefore must know the maximum size of a
/// copy.
template <class D>
concept pins_by_unit = requires(const D& d, void* data, std::size_t bytes, std::size_t unit) {
  { d.allocate_pinned(bytes, unit) } -> std::same_as<pinned_block>;
  { d.deallocate_pinned(data, bytes, unit) } noexcept;
};

/// Returns the total size of `count` slots of `slot_bytes` bytes each. If it overflows, throws
/// `out_of_memory` for `kind` memory.
[[nodiscard]] inline std::size_t bytes_of_slots(memory_kind kind, std::size_t slot_bytes,
                                                std::size_t count) {
  constexpr auto max = (std::numeric_limits<std::size_t>::max)();
  if (slot_bytes <= max / count) return slot_bytes * count;
  throw out_of_memory(
      kind == memory_kind::device ? "device" : "pinned", max,
      str_cat({count, " slots of ", slot_bytes,
               " bytes exceed the address space: use fewer slots or smaller batches"}));
}

/// One contiguous piece of memory, allocated at construction and freed at destruction. Aligned to
/// at least 256 bytes, unless it is memory of the caller. Move-only. The owner must make sure that
/// nothing still uses the memory at destruction. The memory may be divided into equal slots.
template <device Device>
class slab {
 public:
  /// Allocates `bytes` bytes, which must not be 0. `unit` is the size of a slot, or 0 if there are
  /// no slots. Copies from pinned memory must take at most `unit` bytes at a multiple of `unit`.
  /// Throws `out_of_memory`.
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
      case memory_kind::registered:  // see the other constructor
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

  /// Allocates `count` slots of `slot_bytes` bytes. Throws `out_of_memory`.
  slab(const Device& device, memory_kind kind, std::size_t slot_bytes, std::size_t count)
      : slab(device, bytes_of_slots(kind, slot_bytes, count), kind, slot_bytes) {}
  /// Page-locks `memory`, which the caller owns and which must outlive the slab. `unit` is as for
  /// allocated memory. Throws what `registered_memory` throws.
  slab(const Device& device, std::span<std::byte> memory, std::size_t unit)
    requires registering_device<Device>
      : device_(device),
        data_(memory.data()),
        bytes_(memory.size()),
        unit_(unit),
        kind_(memory_kind::registered),
        pinned_(true) {
    if constexpr (registers_by_unit<Device>) {
      device_.register_memory(data_, bytes_, false, unit_);
    } else {
      device_.register_memory(data_, bytes_, false);
    }
  }

  slab(slab&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        unit_(other.unit_),
        kind_(other.kind_),
        pinned_(other.pinned_),
        registration_refused_(other.registration_refused_),
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
        unlock();
        break;
      case memory_kind::pinned_or_pageable:  // the constructor has replaced this kind
        break;
    }
  }

  /// Leaks the memory and reports that on stderr, because work that cannot be waited for may still
  /// use it. The owner may still use the memory until it destroys the slab.
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
  /// In a checked build: fills a slot that nothing uses with the pattern of free memory, and lets
  /// AddressSanitizer report each access to the slot until `allow`.
  void forbid(std::size_t number) noexcept {
    if (!is_on_host()) return;
    poison(slot(number), unit_);
    detail::forbid(slot(number), unit_);
  }
  /// Allows access to the slot again after `forbid`. The slot then has the pattern of free memory,
  /// even if it was not forbidden.
  void allow(std::size_t number) noexcept {
    if (!is_on_host()) return;
    detail::allow(slot(number), unit_);
    poison(slot(number), unit_);
  }
  /// Returns the size in bytes.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Returns true if the memory is page-locked. A GPU's pinned memory always is. If the system
  /// refuses to lock memory for the CPU device, the device uses it anyway, and this returns false.
  [[nodiscard]] bool pinned() const noexcept { return pinned_; }
  /// See `pinned_block::registration_refused`.
  [[nodiscard]] bool registration_refused() const noexcept { return registration_refused_; }

 private:
  /// Returns true if the calling thread may access the memory. This includes device memory if the
  /// device's streams run host functions.
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
    registration_refused_ = block.registration_refused;
    kind_ = memory_kind::pinned;
  }
  void unlock() noexcept {
    if constexpr (registers_by_unit<Device>) {
      device_.unregister_memory(data_, bytes_, unit_);
    } else if constexpr (registering_device<Device>) {
      device_.unregister_memory(data_, bytes_);
    }
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
  bool registration_refused_ = false;
  bool is_leaked_ = false;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
