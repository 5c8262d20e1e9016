// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>

#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/fresh_addresses.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Which memory a slab is made of.
enum class memory_kind {
  device,    ///< device memory
  pinned,    ///< host memory for asynchronous copies
  pageable,  ///< ordinary host memory: copies from it are slower, and on a GPU may be synchronous
  pinned_or_pageable,  ///< pinned where it is to be had, else pageable
};

/// A device that takes pinned memory in pieces, and wants to know what one copy takes.
template <class D>
concept pins_by_unit = requires(const D& d, void* data, std::size_t bytes, std::size_t unit) {
  { d.allocate_pinned(bytes, unit) } -> std::same_as<pinned_block>;
  { d.deallocate_pinned(data, bytes, unit) } noexcept;
};

/// The bytes of `count` slots of `kind` memory, of so many bytes each. Throws `out_of_memory` where
/// an address can't count them.
[[nodiscard]] inline std::size_t bytes_of_slots(std::string_view kind, std::size_t slot_bytes,
                                                std::size_t count) {
  constexpr auto most = (std::numeric_limits<std::size_t>::max)();
  if (slot_bytes <= most / count) return slot_bytes * count;
  throw out_of_memory(kind, most,
                      joined({count, " slots of ", slot_bytes,
                              " bytes are more than an address can count: take fewer slots, or "
                              "smaller batches"}));
}

/// One contiguous piece of memory, taken at construction and freed at destruction. Aligned to 256
/// bytes at least. Move-only. The owner sees to it that nothing still uses it when it goes.
///
/// Memory of equal pieces, slots, is one piece of memory too, but for the CPU device's in a checked
/// build: see `fresh_addresses`. So slots are found by `slot`.
template <device Device>
class slab {
 public:
  /// Copies out of pinned memory take at most `unit` bytes at a multiple of `unit`, the bytes of a
  /// slot; 0: there are no slots. Throws `out_of_memory`; `bytes` must not be 0.
  slab(const Device& device, std::size_t bytes, memory_kind kind, std::size_t unit = 0)
      : device_(device), bytes_(bytes), unit_(unit), kind_(kind) {
    switch (kind) {
      case memory_kind::device:
        if (!addresses_.take(bytes, unit, false)) {
          data_ = static_cast<std::byte*>(device_.allocate(bytes));
        }
        break;
      case memory_kind::pinned:
        take_pinned();
        break;
      case memory_kind::pageable:
        take_pageable();
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

  slab(slab&& other) noexcept
      : device_(other.device_),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        unit_(other.unit_),
        kind_(other.kind_),
        pinned_(other.pinned_),
        registration_refused_(other.registration_refused_),
        addresses_(std::move(other.addresses_)) {}
  slab& operator=(slab&&) = delete;

  ~slab() {
    if (data_ == nullptr) return;
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
      case memory_kind::pinned_or_pageable:  // was one of the two above from construction on
        break;
    }
  }

  /// The first byte, of memory that is not of slots.
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  /// The first byte of a slot of so many bytes, the constructor's unit.
  [[nodiscard]] std::byte* slot(std::size_t number, std::size_t slot_bytes) const noexcept {
    return addresses_ ? addresses_.data(number) : data_ + number * slot_bytes;
  }
  /// In a checked build: what a slot holds is over, so the slot is filled, and moved if it may.
  void erase(std::size_t number) noexcept {
    addresses_.renew(number);
    poison(slot(number, unit_), unit_);
  }
  /// In a checked build: from now on nothing may touch a slot that is not moved ...
  void forbid(std::size_t number) noexcept {
    if (!addresses_) detail::forbid(slot(number, unit_), unit_);
  }
  /// ... until now.
  void allow(std::size_t number) noexcept {
    if (!addresses_) detail::allow(slot(number, unit_), unit_);
  }
  /// What a checked build knows of where slots lie.
  [[nodiscard]] slot_addresses<Device>& addresses() noexcept { return addresses_; }
  /// How many bytes it has.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Whether the memory really is page-locked. A GPU's pinned memory is. The CPU device goes on
  /// where the system refuses to lock: this is false then.
  [[nodiscard]] bool pinned() const noexcept { return pinned_; }
  /// See `pinned_block`.
  [[nodiscard]] bool registration_refused() const noexcept { return registration_refused_; }

 private:
  void take_pinned() {
    if (addresses_.take(bytes_, unit_, true)) {
      pinned_ = addresses_.is_locked();
      kind_ = memory_kind::pinned;
      return;
    }
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
  void take_pageable() {
    if (!addresses_.take(bytes_, unit_, false)) {
      data_ = static_cast<std::byte*>(cpu_device{}.allocate_pageable(bytes_));
    }
    kind_ = memory_kind::pageable;
  }

  Device device_;
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  std::size_t unit_;
  memory_kind kind_;
  bool pinned_ = false;
  bool registration_refused_ = false;
  [[no_unique_address]] slot_addresses<Device> addresses_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
