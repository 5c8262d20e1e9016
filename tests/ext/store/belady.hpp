// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace test {

/// Returns the minimum number of misses of a cache that initially contains `begin`, found by trying
/// all evictions.
inline int fewest_misses(const std::vector<std::uint64_t>& order, std::size_t room,
                         std::set<std::uint64_t> begin = {}) {
  std::map<std::set<std::uint64_t>, int> states{{std::move(begin), 0}};
  for (const std::uint64_t block : order) {
    std::map<std::set<std::uint64_t>, int> next;
    const auto reach = [&](std::set<std::uint64_t> kept, int misses) {
      const auto [at, is_new] = next.try_emplace(std::move(kept), misses);
      if (!is_new) at->second = (std::min)(at->second, misses);
    };
    for (const auto& [kept, misses] : states) {
      if (kept.contains(block)) {
        reach(kept, misses);
        continue;
      }
      reach(kept, misses + 1);  // does not store the block
      std::set<std::uint64_t> all = kept;
      all.insert(block);
      if (all.size() <= room) {
        reach(all, misses + 1);
        continue;
      }
      for (const std::uint64_t goes : kept) {
        std::set<std::uint64_t> others = all;
        others.erase(goes);
        reach(others, misses + 1);
      }
    }
    states = std::move(next);
  }
  int fewest = static_cast<int>(order.size());
  for (const auto& [kept, misses] : states) fewest = (std::min)(fewest, misses);
  return fewest;
}

inline std::vector<std::uint64_t> random_order(std::mt19937& random, std::size_t blocks,
                                               std::size_t length) {
  std::vector<std::uint64_t> order;
  for (std::size_t i = 0; i < length; ++i) order.push_back(random() % blocks);
  return order;
}

}  // namespace test
