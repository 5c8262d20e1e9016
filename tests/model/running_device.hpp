// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/device/device.hpp>

#include "checker.hpp"
#include "device.hpp"

namespace model {

/// A device whose streams run their work when a thread of the scenario calls `run`. An event marks
/// a position in a stream and may be recorded again while other threads wait.
struct running_device : device {
  /// A stream whose work items are numbers. The scenario runs the work and owns the results.
  struct stream_type {
    stream_type() = default;
    stream_type(stream_type&&) noexcept {}
    stream_type& operator=(stream_type&&) noexcept { return *this; }

    atomic<std::uint32_t> queued{0};
    atomic<std::uint32_t> completed{0};

    /// Queues work and returns its number, starting at 1.
    std::uint32_t launch() { return queued.fetch_add(1, std::memory_order_acq_rel) + 1; }
    /// Waits for the next work item and runs `work(number)`.
    template <class Work>
    void run(const Work& work) {
      const std::uint32_t next = completed.load(std::memory_order_relaxed) + 1;
      while (queued.load(std::memory_order_acquire) < next) {
        queued.wait(next - 1, std::memory_order_acquire);
      }
      work(next);
      completed.store(next, std::memory_order_release);
      completed.notify_all();
    }
    /// Makes a thread in `run` check its condition again.
    void wake() { queued.notify_all(); }
    void wait_until_completed(std::uint32_t number) const {
      for (;;) {
        const std::uint32_t now = completed.load(std::memory_order_acquire);
        if (now >= number) return;
        completed.wait(now, std::memory_order_acquire);
      }
    }
  };
  struct stream_ref {
    stream_ref(stream_type& of) noexcept : stream(&of) {}  // NOLINT: as the concept wants it
    stream_type* stream;
  };
  struct event_type {
    event_type() = default;
    event_type(event_type&&) noexcept {}
    event_type& operator=(event_type&&) noexcept { return *this; }
    stream_type* of = nullptr;
    atomic<std::uint32_t> place{0};
  };

  [[nodiscard]] static stream_type make_stream() { return {}; }
  [[nodiscard]] static event_type make_event(penstock::event_wait) { return {}; }
  static void require_usable(stream_ref) {}
  static void record(event_type& event, stream_ref on) {
    if (event.of != on.stream) event.of = on.stream;
    event.place.store(on.stream->queued.load(std::memory_order_acquire), std::memory_order_relaxed);
  }
  static void wait(stream_ref, const event_type&) {}
  static void synchronize(stream_ref on) {
    on.stream->wait_until_completed(on.stream->queued.load(std::memory_order_acquire));
  }
  static void synchronize(const event_type& event) {
    if (event.of != nullptr) {
      event.of->wait_until_completed(event.place.load(std::memory_order_relaxed));
    }
  }
  [[nodiscard]] static bool is_complete(const event_type& event) {
    return event.of == nullptr || event.of->completed.load(std::memory_order_acquire) >=
                                      event.place.load(std::memory_order_relaxed);
  }
  static void copy_async(void*, const void*, std::size_t, stream_ref) {}
};
static_assert(penstock::device<running_device>);

}  // namespace model
