// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The distance that keeps variables of different threads out of one cache line. A constant of our
/// own: the standard's changes with compiler flags, and our layouts would change with it.
#if defined(__aarch64__)
inline constexpr std::size_t cache_line = 128;
#else
inline constexpr std::size_t cache_line = 64;
#endif

/// A value alone in its cache line: one that many threads read while its neighbours are written, or
/// the reverse.
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
