// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/observe/detail/buckets.hpp>
#include <penstock/observe/duration_stats.hpp>
#include <penstock/threads/support/tally.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A histogram of times that one thread fills and any thread reads.
class histogram {
 public:
  /// The filling thread: `count` times took `ticks` each.
  void add(std::uint64_t ticks, std::uint64_t count = 1) noexcept {
    counts_[log_buckets::of(ticks)].add(count);
    total_.add(ticks * count);
    if (ticks > longest_.value()) longest_.set(ticks);
  }

  /// The filling thread: each of these was the ticks of one time.
  void add_all(std::span<const std::uint64_t> ticks) noexcept {
    std::uint64_t total = 0;
    std::uint64_t longest = longest_.value();
    for (const std::uint64_t one : ticks) {
      counts_[log_buckets::of(one)].add(1);
      total += one;
      longest = (std::max)(longest, one);
    }
    total_.add(total);
    longest_.set(longest);
  }

  /// Adds all that is in here to `all`. From any thread.
  void add_to(duration_stats& all) const noexcept {
    for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket)
      all.counts[bucket] += counts_[bucket].value();
    all.total_ticks += total_.value();
    all.longest_ticks = (std::max)(all.longest_ticks, longest_.value());
  }

 private:
  tally total_;
  tally longest_;
  std::array<tally, log_buckets::count> counts_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
