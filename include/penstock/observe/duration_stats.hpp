// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <penstock/observe/detail/buckets.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How long something took, each of many times: a histogram, in ticks of the clock that measured.
/// `quantile` is at most a sixteenth off.
struct duration_stats {
  /// How many times took so long, by `detail::log_buckets`.
  std::array<std::uint64_t, detail::log_buckets::count> counts{};
  std::uint64_t total_ticks = 0;    ///< of all together
  std::uint64_t longest_ticks = 0;  ///< of the longest
  double nanoseconds_per_tick = 1;  ///< how long a tick was

  /// How many times were measured.
  [[nodiscard]] std::uint64_t count() const noexcept {
    std::uint64_t all = 0;
    for (const std::uint64_t some : counts) all += some;
    return all;
  }
  /// The time of all together.
  [[nodiscard]] std::chrono::nanoseconds total() const noexcept {
    return time_of(static_cast<double>(total_ticks));
  }
  /// The longest. After a subtraction at most an eighth too long.
  [[nodiscard]] std::chrono::nanoseconds longest() const noexcept {
    return time_of(static_cast<double>(longest_ticks));
  }
  /// The time that a share of them did not exceed: `quantile(0.5)` is the median. 0 of none.
  [[nodiscard]] std::chrono::nanoseconds quantile(double share) const noexcept {
    const std::uint64_t all = count();
    const auto rank = static_cast<std::uint64_t>(
        std::ceil(std::clamp(share, 0.0, 1.0) * static_cast<double>(all)));
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < counts.size(); ++bucket) {
      seen += counts[bucket];
      if (seen < std::max<std::uint64_t>(1, rank)) continue;
      const auto first = static_cast<double>(detail::log_buckets::first(bucket));
      const auto last = static_cast<double>(detail::log_buckets::last(bucket));
      return time_of((std::min)((first + last) / 2, static_cast<double>(longest_ticks)));
    }
    return std::chrono::nanoseconds{0};
  }

  /// What came between two snapshots of one histogram.
  [[nodiscard]] friend duration_stats operator-(duration_stats later,
                                                const duration_stats& earlier) noexcept {
    std::size_t top = 0;
    for (std::size_t bucket = 0; bucket < later.counts.size(); ++bucket) {
      later.counts[bucket] -= (std::min)(later.counts[bucket], earlier.counts[bucket]);
      if (later.counts[bucket] != 0) top = bucket;
    }
    later.total_ticks -= (std::min)(later.total_ticks, earlier.total_ticks);
    // When the longest one was is not known, but its bucket is.
    const std::uint64_t most = later.counts[top] != 0 ? detail::log_buckets::last(top) : 0;
    if (detail::log_buckets::of(later.longest_ticks) != top || most == 0)
      later.longest_ticks = most;
    return later;
  }
  /// Those of both, in ticks of the first.
  [[nodiscard]] friend duration_stats operator+(duration_stats a,
                                                const duration_stats& b) noexcept {
    for (std::size_t bucket = 0; bucket < a.counts.size(); ++bucket)
      a.counts[bucket] += b.counts[bucket];
    a.total_ticks += b.total_ticks;
    a.longest_ticks = (std::max)(a.longest_ticks, b.longest_ticks);
    return a;
  }

 private:
  [[nodiscard]] std::chrono::nanoseconds time_of(double ticks) const noexcept {
    return std::chrono::nanoseconds{std::llround(ticks * nanoseconds_per_tick)};
  }
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
