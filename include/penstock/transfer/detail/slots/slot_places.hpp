// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/error.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/detail/fresh_addresses.hpp>
#include <penstock/memory/detail/slab.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The device memory of slots, at addresses that stay, but for `fresh_addresses`: one piece for
/// those that are there from the start, a piece of its own for each later one.
template <device Device>
class slot_places {
 public:
  /// `count` slots of `slot_bytes` bytes, which may become `most`. Throws `out_of_memory`.
  slot_places(const Device& where, std::size_t slot_bytes, std::size_t count, std::size_t most)
      : device_(where),
        slot_bytes_(slot_bytes),
        first_(where, bytes_of(slot_bytes, count), memory_kind::device, slot_bytes),
        places_(std::make_unique<place[]>(most)),
        count_(count) {
    more_.reserve(most - count);
    for (std::size_t slot = 0; slot < count; ++slot) {
      places_[slot] = {first_.slot(slot, slot_bytes), {first_.addresses(), slot}};
    }
  }

  /// The first byte of a slot. From any thread that was given the slot.
  [[nodiscard]] std::byte* data(std::size_t slot) const noexcept { return places_[slot].data; }
  /// The next three are of a checked build. The batches are laid out like this, also in the slot
  /// that was added last.
  template <record_type Record>
  void name_fields(const batch_layout<Record>& layout) {
    (more_.empty() ? first_ : more_.back()).addresses().name_fields(layout);
  }
  /// A lease of this batch begins, in `slot`.
  void name_batch(std::size_t slot, const batch_info& batch) const noexcept {
    places_[slot].address.name_batch(batch);
  }
  /// What comes into `slot` next shall lie elsewhere, if it may: returns where the slot lay.
  [[nodiscard]] auto move(std::size_t slot) noexcept {
    return places_[slot].address.move(places_[slot].data);
  }
  /// How many slots there are. From any thread, as `bytes`.
  [[nodiscard]] std::size_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }
  /// How many bytes they take.
  [[nodiscard]] std::size_t bytes() const noexcept { return count() * slot_bytes_; }

  /// Takes one more, of the `most`; false where the device has no room for it. One thread at a
  /// time. Throws what the device throws.
  [[nodiscard]] bool add() {
    const std::size_t slot = count();
    try {
      more_.emplace_back(device_, slot_bytes_, memory_kind::device, slot_bytes_);
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
                        std::to_string(count) + " slots of " + std::to_string(slot_bytes) +
                            " bytes are more than an address can count: lower depth or the size of "
                            "a batch");
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
  // Relaxed: it is a figure for those who ask. Whoever uses a slot was handed it by the thread that
  // adds, after its place was written.
  std::atomic<std::size_t> count_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
