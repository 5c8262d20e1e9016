// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The maximum number of turns of a round.
inline constexpr std::uint64_t most_turns = 65'536;

/// A round in which part p has weights[p] turns: the part of each turn. Each part is spread as
/// evenly as its weight allows: the part with the largest deficit takes the next turn; a tie goes to
/// the first. The sum of the weights is at most `most_turns`.
[[nodiscard]] inline std::vector<std::uint32_t> even_turns(std::span<const std::uint32_t> weights) {
  const auto sum = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::vector<std::uint32_t> turns(static_cast<std::size_t>(sum));
  std::vector<std::uint32_t> had(weights.size());
  for (std::uint64_t place = 1; place <= sum; ++place) {
    std::size_t next = 0;
    std::int64_t most = (std::numeric_limits<std::int64_t>::min)();
    for (std::size_t part = 0; part < weights.size(); ++part) {
      if (weights[part] == 0) continue;
      const auto due = static_cast<std::int64_t>(place * weights[part]);
      const std::int64_t behind = due - static_cast<std::int64_t>(sum * had[part]);
      if (behind > most) next = part;
      most = (std::max)(most, behind);
    }
    turns[static_cast<std::size_t>(place - 1)] = static_cast<std::uint32_t>(next);
    ++had[next];
  }
  return turns;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
