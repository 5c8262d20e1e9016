// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A moment at which a wait ends. Of the clock that nobody sets: the kernel's monotonic one.
using deadline = std::chrono::steady_clock::time_point;

/// The moment that is `limit` after `now`, or the last one that there is. A limit below 0 is none.
template <class Rep, class Period>
[[nodiscard]] deadline deadline_in(const std::chrono::duration<Rep, Period>& limit,
                                   deadline now = std::chrono::steady_clock::now()) noexcept {
  // As floating numbers: hours that do not fit into nanoseconds compare right.
  using wide = std::chrono::duration<long double, deadline::period>;
  const wide wanted = limit;
  if (!(wanted > wide::zero())) return now;  // and what is no number
  if (wanted >= wide{(deadline::max)() - now}) return (deadline::max)();
  return now + std::chrono::ceil<deadline::duration>(limit);
}

/// A moment of any precision, rounded up.
template <class Duration>
[[nodiscard]] deadline deadline_at(
    const std::chrono::time_point<std::chrono::steady_clock, Duration>& at) noexcept {
  return deadline_in(at.time_since_epoch(), deadline{});
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
