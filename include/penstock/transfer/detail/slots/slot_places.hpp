// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/core/support/joined.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/fresh_addresses.hpp>
#include <penstock/memory/support/slab.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The device memory of slots, at addresses that stay, but for `fresh_addresses`: one piece for
/// those that are there from the start, a piece of its own for each later one.
template <device Device>
class slot_places {
 public:
  /// `count` slots for batches of this layout, which may become `most`. Throws `out_of_memory`.
  template <record_type Record>
  slot_places(const Device& device, const batch_layout<Record>& layout, std::size_t count,
              std::size_t most)
      : device_(device),
        slot_bytes_(layout.bytes()),
        first_(device, bytes_of(slot_bytes_, count), memory_kind::device, slot_bytes_),
        places_(std::make_unique<place[]>(most)),
        count_(count) {
    more_.reserve(most - count);
    first_.addresses().name_fields(layout);
    for (std::size_t slot = 0; slot < count; ++slot) {
      places_[slot] = {first_.slot(slot, slot_bytes_), {first_.addresses(), slot}};
    }
  }

  /// The first byte of a slot. From any thread that was given the slot.
  [[nodiscard]] std::byte* data(std::size_t slot) const noexcept { return places_[slot].data; }
  /// In a checked build: a lease of this batch begins, in `slot`.
  void name_batch(std::size_t slot, const batch_info& batch) const noexcept {
    places_[slot].address.name_batch(batch);
  }
  /// In a checked build: what comes into `slot` next lies elsewhere, if it may. What is returned is
  /// to be called when nothing uses any more what the slot holds now.
  [[nodiscard]] auto leave(std::size_t slot) noexcept {
    const auto left = places_[slot].address.move(places_[slot].data);
    return [left, next = data(slot), bytes = slot_bytes_]() noexcept {
      left.close();
      poison(next, bytes);
    };
  }
  /// How many slots there are. From any thread, as `bytes`.
  [[nodiscard]] std::size_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }
  /// How many bytes they take.
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * slot_bytes_; }

  /// Takes one more of this layout, of the `most`; false where the device has no room for it. One
  /// thread at a time. Throws what the device throws.
  template <record_type Record>
  [[nodiscard]] bool add(const batch_layout<Record>& layout) {
    const std::size_t slot = count();
    try {
      slab<Device> made{device_, slot_bytes_, memory_kind::device, slot_bytes_};
      made.addresses().name_fields(layout);
      more_.push_back(std::move(made));
    } catch (const out_of_memory&) {
      return false;
    }
    places_[slot] = {more_.back().slot(0, slot_bytes_), {more_.back().addresses(), 0}};
    count_.store(slot + 1, std::memory_order_relaxed);
    return true;
  }

 private:
  static std::size_t bytes_of(std::size_t slot_bytes, std::size_t count) {
    constexpr auto most = (std::numeric_limits<std::size_t>::max)();
    if (slot_bytes <= most / count) return slot_bytes * count;
    throw out_of_memory("device", most,
                        joined({count, " slots of ", slot_bytes,
                                " bytes are more than an address can count: lower depth or the "
                                "size of a batch"}));
  }

  struct place {
    std::byte* data = nullptr;
    [[no_unique_address]] typename slot_addresses<Device>::one address;
  };

  Device device_;
  std::size_t slot_bytes_;
  slab<Device> first_;
  std::vector<slab<Device>> more_;   // never moved: there is room for all
  std::unique_ptr<place[]> places_;  // by slot
  // Relaxed: it is a figure for statistics. A thread that uses a slot was handed it by the thread
  // that adds, after its place was written.
  std::atomic<std::size_t> count_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
