// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <unordered_map>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What is held, and what goes first when room is needed: what is used last of all, or never again
/// (Belady 1966: for things of one size nothing does better); of those, what was used longest ago.
/// One thread at a time.
class eviction_order {
 public:
  /// Holds `block`, of so many bytes, which is used next at `next_use`, and was used just now. What
  /// is held already gets another next use.
  void hold(std::uint64_t block, std::uint64_t bytes, std::uint64_t next_use) {
    drop(block);
    const place at{next_use, --age_, block};
    order_.insert(at);
    held_.emplace(block, one_held{at, bytes});
    bytes_ += bytes;
  }
  /// As `hold`, for what was last used before all that are held.
  void hold_as_oldest(std::uint64_t block, std::uint64_t bytes, std::uint64_t next_use) {
    drop(block);
    const place at{next_use, ++oldest_, block};
    order_.insert(at);
    held_.emplace(block, one_held{at, bytes});
    bytes_ += bytes;
  }
  /// Gives all that are held the next uses that `next_use(block)` says; their age stays.
  template <class NextUse>
  void rearrange(const NextUse& next_use) {
    order_.clear();
    for (auto& [block, one] : held_) {
      std::get<0>(one.at) = next_use(block);
      order_.insert(one.at);
    }
  }
  /// Lets `block` go, if it is held.
  void drop(std::uint64_t block) {
    const auto found = held_.find(block);
    if (found == held_.end()) return;
    bytes_ -= found->second.bytes;
    order_.erase(found->second.at);
    held_.erase(found);
  }

  /// Whether `block` is held.
  [[nodiscard]] bool holds(std::uint64_t block) const { return held_.contains(block); }
  /// How many bytes are held.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// How many are held.
  [[nodiscard]] std::uint64_t size() const noexcept { return held_.size(); }
  /// What goes first; not to be asked where nothing is held.
  [[nodiscard]] std::uint64_t first_to_go() const { return std::get<2>(*order_.rbegin()); }
  /// Calls `visit(block)` for all that are held, in no order.
  template <class Visit>
  void each(const Visit& visit) const {
    for (const auto& [block, one] : held_) visit(block);
  }

 private:
  // The next use, the age (the older the higher), the block.
  using place = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  struct one_held {
    place at;
    std::uint64_t bytes;
  };

  static constexpr std::uint64_t middle = std::uint64_t{1} << 63U;

  std::set<place> order_;
  std::unordered_map<std::uint64_t, one_held> held_;
  std::uint64_t bytes_ = 0;
  std::uint64_t age_ = middle;
  std::uint64_t oldest_ = middle;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
