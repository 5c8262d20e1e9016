// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>

/// Counters of the operator new in support/counting_new.hpp, for all sources of the program.
namespace test {

inline std::atomic<std::size_t> allocations{0};
inline std::atomic<std::size_t> live_bytes{0};  ///< live bytes, in the block sizes of the heap
inline std::atomic<std::size_t> peak_bytes{0};  ///< maximum of live_bytes since the last reset

/// The allocation that fails: 1 is the next allocation, 0 is none. Counts down and is 0 again after
/// the failure.
inline std::atomic<std::size_t> failing_allocation{0};

}  // namespace test
