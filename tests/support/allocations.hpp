// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>

/// Counters that the operator new in support/counting_new.hpp updates.
namespace test {

inline std::atomic<std::size_t> allocations{0};
inline std::atomic<std::size_t> live_bytes{0};  ///< bytes currently allocated, in heap block sizes
inline std::atomic<std::size_t> peak_bytes{0};  ///< maximum of live_bytes since the last reset

/// Countdown to an allocation failure: 1 makes the next allocation fail, and 0 none. The counter is
/// 0 again after the failure.
inline std::atomic<std::size_t> failing_allocation{0};

}  // namespace test
