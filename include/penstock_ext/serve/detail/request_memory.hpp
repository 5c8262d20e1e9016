// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/batch_info.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/device.hpp>
#include <penstock/memory/support/slab.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The memory of a `batcher`: one pinned slab, cut into slots that each hold a batch, and for each
/// slot the event of the last copy out of it. Which slot may be used when it does not know.
template <record_type Record, device Device>
class request_memory {
 public:
  using record_type = Record;
  using device_type = Device;
  using stream_ref = typename Device::stream_ref;

  /// Throws `out_of_memory`, and what the device throws.
  request_memory(const Device& device, const batch_layout<Record>& layout, std::size_t count)
      : device_(device),
        layout_(layout),
        memory_(device, bytes_of(layout, count), memory_kind::pinned, layout.bytes()) {
    drained_.reserve(count);
    for (std::size_t slot = 0; slot < count; ++slot) {
      drained_.push_back(device.make_event(event_wait::by_host));
    }
    memory_.addresses().name_fields(layout_);
  }
  request_memory(request_memory&&) = delete;
  /// The memory goes: no copy may still read it.
  ~request_memory() {
    for (const auto& end : drained_) {
      try {
        device_.synchronize(end);
      } catch (...) {  // NOLINT: a device in error runs no copies any more
      }
    }
  }

  [[nodiscard]] const Device& device() const noexcept { return device_; }
  [[nodiscard]] const batch_layout<Record>& layout() const noexcept { return layout_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] bool pinned() const noexcept { return memory_.pinned(); }
  [[nodiscard]] std::byte* data(std::uint32_t slot) const noexcept {
    return memory_.slot(slot, layout_.bytes());
  }

  /// In a checked build: a lease of `batch` begins, in `slot`.
  void name_batch(std::uint32_t slot, const batch_info& batch) noexcept {
    memory_.addresses().name_batch(slot, batch);
  }
  /// In a checked build: nothing uses the slot any more, and its addresses are over.
  void renew(std::uint32_t slot) noexcept { memory_.addresses().renew(slot); }

  /// Where a request is written.
  [[nodiscard]] sample<Record> at(std::uint32_t slot, std::size_t position) const noexcept {
    return {data(slot), layout_, position};
  }
  /// Copies the sample at `from` to the place `to`.
  void move_sample(std::uint32_t slot, std::size_t from, std::size_t to) const noexcept {
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (move_field<Is>(data(slot), from, to), ...);
    }
    (std::make_index_sequence<Record::size>{});
  }

  /// Marks the end of what `stream` was given, a copy out of the slot. Throws what the device
  /// throws; the stream is waited for then.
  void mark_copy(std::uint32_t slot, stream_ref stream) {
    try {
      device_.record(drained_[slot], stream);
    } catch (...) {
      try {
        device_.synchronize(stream);
      } catch (...) {  // NOLINT: as above
      }
      throw;
    }
  }
  /// Whether the last copy out of the slot has ended.
  [[nodiscard]] bool is_drained(std::uint32_t slot) const {
    return device_.is_complete(drained_[slot]);
  }

 private:
  template <std::size_t Index>
  void move_field(std::byte* slab, std::size_t from, std::size_t to) const noexcept {
    const std::size_t bytes = layout_.template sample_bytes<Index>();
    std::byte* const field = slab + layout_.template offset<Index>();
    std::memcpy(field + to * bytes, field + from * bytes, bytes);
  }

  static std::size_t bytes_of(const batch_layout<Record>& layout, std::size_t count) {
    constexpr auto most = (std::numeric_limits<std::size_t>::max)();
    if (layout.bytes() <= most / count) return layout.bytes() * count;
    throw out_of_memory("pinned", most,
                        std::to_string(count) + " slots of " + std::to_string(layout.bytes()) +
                            " bytes are more than an address can count: lower depth or most");
  }

  Device device_;
  batch_layout<Record> layout_;
  slab<Device> memory_;
  std::vector<typename Device::event_type> drained_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
