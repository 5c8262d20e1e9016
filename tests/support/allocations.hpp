// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>

/// What the operator new of support/counting_new.hpp counts, for all sources of the program.
namespace test {

inline std::atomic<std::size_t> allocations{0};
inline std::atomic<std::size_t> live_bytes{0};  ///< taken and not freed, as the heap rounds them up
inline std::atomic<std::size_t> peak_bytes{0};  ///< the most that were live since it was set

/// The allocation that is to fail, counted from now on, 1 for the next; 0 for none. Counts down,
/// and is 0 again once it has failed.
inline std::atomic<std::size_t> failing_allocation{0};

}  // namespace test
