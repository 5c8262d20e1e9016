// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

namespace stress {

/// Spins for about half a microsecond per turn. Does not yield: on a busy machine each yield takes
/// a time slice, and a soak test calls this a million times.
inline void take_a_while(std::uint64_t turns) {
  std::atomic<std::uint64_t> spent = 0;
  for (std::uint64_t i = 0; i < 100 * turns; ++i) spent.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace stress
