// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Maximum number of turns in a round.
inline constexpr std::uint64_t max_turns = 65'536;

/// Returns `weights` divided by their greatest common divisor. Throws `option_error` if all weights
/// are 0, or if the resulting sum exceeds `max_turns`.
[[nodiscard]] inline std::vector<std::uint32_t> reduced(std::vector<std::uint32_t> weights) {
  std::uint32_t divisor = 0;
  for (const std::uint32_t weight : weights) divisor = std::gcd(divisor, weight);
  if (divisor == 0)
    throw_option_error("weights", {"all weights are 0: at least one must be positive"});
  std::uint64_t sum = 0;
  for (std::uint32_t& weight : weights) sum += weight /= divisor;
  if (sum <= max_turns) return weights;
  throw_option_error(
      "weights", {"their sum after division by the common divisor is ", sum, ", above ", max_turns,
                  ": use coarser weights, for example from `temperature_weights`"});
}

/// A part's turn in a round.
struct part_turn {
  std::uint32_t part;
  std::uint32_t before;  ///< number of earlier turns of this part in the round

  friend bool operator==(const part_turn&, const part_turn&) = default;
};

/// Returns the turns of a round in which part p has weights[p] turns, evenly distributed. The part
/// with the largest deficit has the next turn, and ties go to the first part. The sum of the
/// weights must be at most `max_turns`.
[[nodiscard]] inline std::vector<part_turn> round_robin(std::span<const std::uint32_t> weights) {
  // Parts of equal weight have their turns in cyclic order, so only the next part is compared.
  struct equals {
    std::uint32_t weight;
    std::vector<std::uint32_t> parts;
    std::size_t at;     // index of the next part
    std::uint32_t had;  // number of turns of the next part so far
    [[nodiscard]] std::uint32_t part() const noexcept { return parts[at]; }
  };
  std::vector<equals> all;
  for (std::size_t part = 0; part < weights.size(); ++part) {
    if (weights[part] == 0) continue;
    auto same = std::ranges::find(all, weights[part], &equals::weight);
    if (same == all.end()) same = all.insert(same, {weights[part], {}, 0, 0});
    same->parts.push_back(static_cast<std::uint32_t>(part));
  }
  const auto sum = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::vector<part_turn> turns;
  turns.reserve(static_cast<std::size_t>(sum));
  for (std::uint64_t place = 1; place <= sum; ++place) {
    equals* next = nullptr;
    std::int64_t max = (std::numeric_limits<std::int64_t>::min)();
    for (equals& one : all) {
      const auto due = static_cast<std::int64_t>(place * one.weight);
      const std::int64_t behind = due - static_cast<std::int64_t>(sum * one.had);
      if (behind > max || (behind == max && one.part() < next->part())) next = &one;
      max = (std::max)(max, behind);
    }
    turns.push_back({next->part(), next->had});
    if (++next->at == next->parts.size()) {
      next->at = 0;
      ++next->had;
    }
  }
  return turns;
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
