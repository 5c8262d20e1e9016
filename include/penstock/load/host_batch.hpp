// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/lease.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/host_slots.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A lease of one batch in host memory, whatever its record: what a `transfer` copies from.
template <device Device>
class host_lease : public slot_lease<detail::host_slots<Device>, std::uint32_t> {
  using slots_type = detail::host_slots<Device>;
  using base = slot_lease<slots_type, std::uint32_t>;

 protected:
  using base::guard_;
  using base::slot_;
  using base::slots_;

 public:
  using device_type = Device;

  /// An empty lease.
  host_lease() = default;
  /// A lease of `slot`, which holds the batch; `guard` is what a checked build knows of it.
  host_lease(std::shared_ptr<slots_type> ring, std::uint32_t slot, const batch_info& info,
             detail::lease_guard guard) noexcept
      : base(std::move(ring), slot, info,
             std::move(guard)) {  // NOLINT: trivial, but in a checked build
    slots_->note_lease(slot_, info);
    slots_->leases().begin(slot_);
  }
  /// A lease of `slot`, which holds the batch. In a checked build it may throw std::bad_alloc, and
  /// the slot stays the caller's.
  host_lease(std::shared_ptr<slots_type> ring, std::uint32_t slot,
             const batch_info& info) noexcept(!detail::checked)
      : host_lease(std::move(ring), slot, info, detail::lease_guard{info.epoch, info.batch}) {}
  host_lease(host_lease&&) noexcept = default;
  host_lease& operator=(host_lease&& other) noexcept {
    if (this != &other) {
      release();
      base::operator=(std::move(other));
    }
    return *this;
  }
  ~host_lease() { release(); }

  /// The device that the memory is for.
  [[nodiscard]] const Device& device() const noexcept {
    base::use();
    return slots_->device();
  }
  /// Whether the memory is page-locked.
  [[nodiscard]] bool pinned() const noexcept {
    base::use();
    return slots_->pinned();
  }

  /// Which samples the batch has: their indices in the loader's dataset, by their places, `size()`
  /// of them; what a substitute took the place of is not among them. Empty unless
  /// `loader_options::observe.indices` is set. Valid until the lease ends.
  [[nodiscard]] std::span<const std::uint64_t> indices() const noexcept {
    base::use();
    return slots_->lists.indices(slot_, base::size());
  }
  /// The places whose sample could not be read and was substituted by another
  /// (`error_action::substitute`), ascending. Empty unless `loader_options::observe.indices` is
  /// set. Valid until the lease ends.
  [[nodiscard]] std::span<const std::uint64_t> substituted() const noexcept {
    base::use();
    return slots_->lists.substituted(slot_);
  }

  /// Gives the slot back as soon as `stream` has done what it was given so far: for a copy out of
  /// the slot that is still under way. The lease is empty then. Throws what the device throws.
  void release_after(typename Device::stream_ref stream) {
    base::use();
    end_lease()->give_back_after(slot_, stream);
  }
  /// Records how far `stream` is, for this lease and others that `release_behind` ends; null where
  /// that can't be. See `host_slots::mark_copies`.
  [[nodiscard]] auto mark_copies(typename Device::stream_ref stream) {
    base::use();
    return slots_->mark_copies(slot_, stream);
  }
  /// Gives the slot back as soon as what `mark` has recorded is done. The lease is empty then.
  void release_behind(typename slots_type::mark_type* mark) noexcept {
    base::use();
    end_lease()->give_back_behind(slot_, mark);
  }

 private:
  void release() noexcept {
    if (slots_ != nullptr) end_lease()->give_back(slot_);
  }
  /// Returns the ring of the lease that ends here, which gets the slot back next.
  [[nodiscard]] std::shared_ptr<slots_type> end_lease() noexcept {
    guard_.end();
    slots_->leases().end(slot_, base::info());
    slots_->note_release();
    return std::move(slots_);
  }
};

/// A lease of one batch in host memory. Move-only; its destruction gives the slot back for
/// refilling. It may be moved out of the loop and kept, also beyond the loader: the memory lives as
/// long. Used by one thread at a time: to go on with it on another thread, move it. May be
/// destroyed on any.
template <record_type Record, device Device>
class host_batch : public lease<Record, host_lease<Device>> {
  using base = lease<Record, host_lease<Device>>;

 public:
  using base::base;
  host_batch() = default;
  host_batch(host_batch&&) noexcept = default;
  /// A copy, as `auto batch` in a loop makes one, does not compile, and says why.
  template <std::same_as<host_batch> Lease>
  host_batch(Lease&) {  // NOLINT: implicit, as a copy is
    detail::refuse_copy_of_lease<Lease>();
  }
  host_batch& operator=(host_batch&&) noexcept = default;
};

namespace detail {

/// Whether a batch is a lease of a host slot and nothing more.
template <class Batch, class Device>
inline constexpr bool is_host_lease = std::same_as<Batch, host_lease<Device>>;
template <class Record, class Device>
inline constexpr bool is_host_lease<host_batch<Record, Device>, Device> = true;

}  // namespace detail

}  // namespace PENSTOCK_ABI
}  // namespace penstock
