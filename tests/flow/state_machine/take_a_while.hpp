// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>

namespace stress {

/// Spins for about half a microsecond per turn. Does not yield, because a yield takes a whole time
/// slice on a busy machine, and a soak test calls this function a million times.
inline void take_a_while(std::uint64_t turns) {
  std::atomic<std::uint64_t> spent = 0;
  for (std::uint64_t i = 0; i < 100 * turns; ++i) spent.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace stress
