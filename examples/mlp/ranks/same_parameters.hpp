// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "collective.hpp"

namespace mlp {

/// Throws on each rank that has other bits than another one: all have made the same updates, or a
/// sum was not the same for all of them. Bits and not values: a NaN is no difference, and a zero of
/// another sign is one.
template <collective Collective>
void require_same_parameters(std::span<const float> mine, Collective& ranks) {
  std::vector<float> all(mine.size() * static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(std::as_bytes(mine), std::as_writable_bytes(std::span{all}));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const float* theirs = all.data() + static_cast<std::size_t>(rank) * mine.size();
    if (std::memcmp(theirs, mine.data(), mine.size_bytes()) == 0) continue;
    throw std::runtime_error("rank " + std::to_string(rank) + " has other parameters than rank " +
                             std::to_string(ranks.rank()));
  }
}

}  // namespace mlp
