// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <unordered_map>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// When blocks are used next, as far as that was told: blocks are known by a number each, and a use
/// by its place in the order. One thread at a time.
class next_uses {
 public:
  /// The place of what is not used any more.
  static constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

  /// The blocks that are used from now on, in order; what was told before is forgotten.
  void tell(std::span<const std::uint64_t> blocks) {
    std::unordered_map<std::uint64_t, places> all;
    for (const std::uint64_t block : blocks) ++all[block].end;
    std::size_t begin = 0;
    for (auto& [block, of] : all) {
      of.begin = begin;
      begin += of.end;
      of.end = of.begin;
    }
    std::vector<std::uint64_t> order(blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) order[all[blocks[i]].end++] = i;
    places_.swap(all);
    order_.swap(order);
    left_ = blocks.size();
  }

  /// The place at which `block` is used next.
  [[nodiscard]] std::uint64_t of(std::uint64_t block) const {
    const auto found = places_.find(block);
    if (found == places_.end() || found->second.begin == found->second.end) return never;
    return order_[found->second.begin];
  }

  /// The place at which it is used after that.
  [[nodiscard]] std::uint64_t after(std::uint64_t block) const {
    const auto found = places_.find(block);
    if (found == places_.end() || found->second.end - found->second.begin < 2) return never;
    return order_[found->second.begin + 1];
  }

  /// `block` was used: its next use is the one after.
  void use(std::uint64_t block) {
    const auto found = places_.find(block);
    if (found == places_.end() || found->second.begin == found->second.end) return;
    ++found->second.begin;
    --left_;
  }

  /// How many uses are to come.
  [[nodiscard]] std::size_t size() const noexcept { return left_; }

 private:
  struct places {
    std::size_t begin = 0;  // in `order_`
    std::size_t end = 0;
  };

  std::unordered_map<std::uint64_t, places> places_;
  std::vector<std::uint64_t> order_;  // the places of each block, one block after the other
  std::size_t left_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
