// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

namespace stress {

/// Takes about half a microsecond for each turn, without a yield. If other processes compute, a
/// yield costs a time slice, and a soak test would make a million of them.
inline void take_a_while(std::uint64_t turns) {
  std::atomic<std::uint64_t> spent = 0;
  for (std::uint64_t i = 0; i < 100 * turns; ++i) spent.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace stress
