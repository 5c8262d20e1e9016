// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The distance that keeps variables of different threads in different cache lines. Not the
/// standard's constant, which changes with compiler flags and would change layouts with it.
#if defined(__aarch64__)
inline constexpr std::size_t cache_line = 128;
#else
inline constexpr std::size_t cache_line = 64;
#endif

/// A value with a cache line to itself, for a value that many threads read while its neighbours are
/// written, or the reverse.
template <class T>
struct alignas(cache_line) own_line {
  T value;
};

static_assert(alignof(own_line<std::uint64_t>) == cache_line &&
                  sizeof(own_line<std::uint64_t>) == cache_line,
              "what comes before it and after it lies in other lines");

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
