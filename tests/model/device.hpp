// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/device/device.hpp>

#include "checker.hpp"

namespace model {

/// A device whose events are plain memory. The checker detects any use of an event that is not
/// ordered with its record.
struct device {
  struct stream_type {
    stream_type() = default;
    stream_type(stream_type&&) = default;
    stream_type& operator=(stream_type&&) = default;
  };
  struct stream_ref {
    stream_ref() = default;
    stream_ref(stream_type&) noexcept {}  // NOLINT: as the concept wants it
  };
  /// An event that may be moved only before its first use. The object is stored in place, because
  /// allocations would multiply the number of interleavings.
  struct event_type {
    event_type() = default;
    event_type(event_type&&) noexcept {}
    event_type& operator=(event_type&&) noexcept { return *this; }
    plain<int> records{0};
  };

  [[nodiscard]] static stream_type make_stream() { return {}; }
  [[nodiscard]] static event_type make_event(penstock::event_wait) { return {}; }
  static void require_usable(stream_ref) {}
  static void record(event_type& event, stream_ref) { event.records.set(event.records.get() + 1); }
  static void wait(stream_ref, const event_type& event) { static_cast<void>(event.records.get()); }
  static void synchronize(stream_ref) {}
  static void synchronize(const event_type& event) { static_cast<void>(event.records.get()); }
  [[nodiscard]] static bool is_complete(const event_type& event) {
    return event.records.get() >= 0;
  }
  static void copy_async(void*, const void*, std::size_t, stream_ref) {}
  [[nodiscard]] static void* allocate(std::size_t bytes) {
    alignas(256) static std::array<std::byte, 4096> memory;
    require(bytes <= memory.size(), "the model's memory suffices");
    return memory.data();
  }
  static void deallocate(void*, std::size_t) noexcept {}
  [[nodiscard]] static penstock::pinned_block allocate_pinned(std::size_t bytes) {
    return {allocate(bytes), true};
  }
  static void deallocate_pinned(void*, std::size_t) noexcept {}
  static void make_current() {}
};
static_assert(penstock::device<device>);

}  // namespace model
