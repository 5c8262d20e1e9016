// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <penstock/device/device.hpp>
#include <penstock/threads/support/waitable_counter.hpp>

#include "support/gated_device.hpp"

/// A gated device that also reports when it frees host memory and when a thread is about to block.
struct freeing_device : gated_device {
  struct watch {
    std::atomic<int> frees{0};
    // Incremented before a thread blocks, after memory is freed, and on request of the test.
    penstock::detail::waitable_counter reached;
  };
  std::shared_ptr<watch> seen = std::make_shared<watch>();

  void wait_until_reached() const {
    seen->reached.wait([](std::uint32_t times) { return times != 0; });
  }

  void synchronize(stream_ref stream) const {
    seen->reached.advance();
    gated_device::synchronize(stream);
  }
  void synchronize(const event_type& event) const {
    if (!is_complete(event)) seen->reached.advance();
    gated_device::synchronize(event);
  }
  void deallocate_pinned(void* data, std::size_t bytes) const noexcept {
    gated_device::deallocate_pinned(data, bytes);
    ++seen->frees;
    seen->reached.advance();
  }
};
static_assert(penstock::device<freeing_device>);
