// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include <penstock/device/cpu_device.hpp>
#include <penstock/device/device.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A device that can page-lock memory that exists already:
///
/// - `register_memory(data, bytes, read_only)` locks it for asynchronous copies, or throws and has
///   locked nothing. `read_only` says that the pages may not be written to;
/// - `unregister_memory(data, bytes)` ends that, with the same range.
template <class D>
concept registering_device = device<D> && requires(const D& d, void* data, std::size_t bytes) {
  d.register_memory(data, bytes, true);
  { d.unregister_memory(data, bytes) } noexcept;
};

namespace detail {

/// A device that registers large ranges in pieces, and wants to know what one copy takes.
template <class D>
concept registers_by_unit = requires(const D& d, void* data, std::size_t bytes, std::size_t unit) {
  d.register_memory(data, bytes, true, unit);
  { d.unregister_memory(data, bytes, unit) } noexcept;
};

}  // namespace detail

/// Memory with another owner, page-locked as long as this object lives: a mapped file, a vector.
///
///     std::vector<float> table = ...;
///     ps::registered_memory locked{ps::cuda_device{0}, std::as_writable_bytes(std::span{table})};
///
/// Owns the registration and not the memory, which must stay where it is until this is gone; no
/// copy may use it then. Whole pages are locked: give page-aligned ranges where several are
/// registered. Slow (about a page fault a page); meant for construction. Move-only. A range of no
/// bytes is not registered, and no error.
///
/// Some machines refuse to lock more than 2 or 4 GB in one call. Where no copy takes more than
/// `unit` bytes at a multiple of `unit` from the first byte on, say so: CUDA then registers more
/// than 1 GiB in pieces, whose borders are whole pages and cut no unit, as far as there are such
/// places. It refuses a copy that lies in two pieces. Without a unit all of it is one piece.
///
/// Throws `out_of_memory` when the system refuses; on CUDA `memory_already_registered` when a part
/// of the range is registered, `registration_unsupported` for read-only memory where the device
/// can't, and for a piece above 2 GB that the machine finds too large.
template <registering_device Device>
class registered_memory {
 public:
  /// Page-locks `memory`, which must outlive this, for `device`.
  registered_memory(const Device& device, std::span<std::byte> memory, std::size_t unit = 0)
      : registered_memory(device, memory.data(), memory.size(), false, unit) {}

  /// Memory that no thread writes to meanwhile; its pages may be mapped read-only.
  registered_memory(const Device& device, std::span<const std::byte> memory, std::size_t unit = 0)
      : registered_memory(device, const_cast<std::byte*>(memory.data()), memory.size(), true,
                          unit) {}

  registered_memory(registered_memory&& other) noexcept
      : device_(other.device_),
        memory_(std::exchange(other.memory_, {})),
        unit_(other.unit_),
        read_only_(other.read_only_) {}
  registered_memory& operator=(registered_memory&& other) noexcept {
    if (this != &other) {
      release();
      device_ = other.device_;
      memory_ = std::exchange(other.memory_, {});
      unit_ = other.unit_;
      read_only_ = other.read_only_;
    }
    return *this;
  }
  ~registered_memory() { release(); }

  /// The registered bytes; none after a move.
  [[nodiscard]] std::span<const std::byte> memory() const noexcept { return memory_; }
  /// How many bytes are locked.
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.size(); }
  /// True for memory that was given as const.
  [[nodiscard]] bool read_only() const noexcept { return read_only_; }

 private:
  registered_memory(const Device& device, std::byte* data, std::size_t bytes, bool read_only,
                    std::size_t unit)
      : device_(device), memory_(data, bytes), unit_(unit), read_only_(read_only) {
    if (bytes == 0) return;
    if constexpr (detail::registers_by_unit<Device>) {
      device_.register_memory(data, bytes, read_only, unit);
    } else {
      device_.register_memory(data, bytes, read_only);
    }
  }

  void release() noexcept {
    if (memory_.empty()) return;
    if constexpr (detail::registers_by_unit<Device>) {
      device_.unregister_memory(memory_.data(), memory_.size(), unit_);
    } else {
      device_.unregister_memory(memory_.data(), memory_.size());
    }
    memory_ = {};
  }

  Device device_;
  std::span<std::byte> memory_;
  std::size_t unit_;
  bool read_only_;
};

static_assert(registering_device<cpu_device>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
