// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The next use of what is not used any more.
inline constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

/// What is held, and what goes first when room is needed: what is used last of all, or never again
/// (Belady 1966: for things of one size nothing does better); of those, what was used longest ago.
/// One thread at a time.
class eviction_order {
 public:
  /// Holds `block`, of so many bytes, which is used next at `next_use`, and was used just now. What
  /// is held already gets another next use. Without memory it throws, and the block is not held.
  void hold(std::uint64_t block, std::uint64_t bytes, std::uint64_t next_use) {
    const auto found = held_.find(block);
    if (found == held_.end()) return put({next_use, --age_, block}, bytes);
    bytes_ = bytes_ - found->second.bytes + bytes;
    found->second.bytes = bytes;
    move_to(found->second, {next_use, --age_, block});
  }
  /// As `hold`, for what is not held, and was last used before all that are.
  void hold_as_oldest(std::uint64_t block, std::uint64_t bytes, std::uint64_t next_use) {
    put({next_use, ++oldest_, block}, bytes);
  }
  /// Gives all that are held the next uses that `next_use(block)` says; their age stays.
  template <class NextUse>
  void rearrange(const NextUse& next_use) {
    for (auto& [block, one] : held_) renew(one, next_use(block));
  }
  /// Gives `block` another next use, if it is held; its age stays.
  void renew(std::uint64_t block, std::uint64_t next_use) {
    const auto found = held_.find(block);
    if (found != held_.end()) renew(found->second, next_use);
  }
  /// Lets `block` go, if it is held.
  void drop(std::uint64_t block) {
    const auto found = held_.find(block);
    if (found == held_.end()) return;
    bytes_ -= found->second.bytes;
    order_.erase(found->second.at);
    held_.erase(found);
  }
  /// Lets those go that `stays(block)` is false for.
  template <class Stays>
  void keep_only(const Stays& stays) {
    for (auto next = held_.begin(); next != held_.end();) {
      const std::uint64_t block = next++->first;
      if (!stays(block)) drop(block);
    }
  }

  /// Whether `block` is held.
  [[nodiscard]] bool holds(std::uint64_t block) const { return held_.contains(block); }
  /// How many bytes are held.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// What goes first; not to be asked where nothing is held.
  [[nodiscard]] std::uint64_t first_to_go() const { return std::get<2>(*order_.rbegin()); }
  /// When what goes first is used next; not to be asked where nothing is held.
  [[nodiscard]] std::uint64_t last_use() const { return std::get<0>(*order_.rbegin()); }

 private:
  // The next use, the age (the older the higher), the block.
  using place = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  struct one_held {
    place at;
    std::uint64_t bytes;
  };

  void renew(one_held& one, std::uint64_t next_use) {
    move_to(one, {next_use, std::get<1>(one.at), std::get<2>(one.at)});
  }
  void move_to(one_held& one, const place& to) {
    auto node = order_.extract(one.at);  // which takes no memory, so nothing is lost halfway
    node.value() = one.at = to;
    order_.insert(std::move(node));
  }

  // Both or neither: a block that is held and has no place never goes.
  void put(const place& at, std::uint64_t bytes) {
    const auto placed = order_.insert(at).first;
    try {
      held_.emplace(std::get<2>(at), one_held{at, bytes});
    } catch (...) {
      order_.erase(placed);
      throw;
    }
    bytes_ += bytes;
  }

  static constexpr std::uint64_t middle = std::uint64_t{1} << 63U;

  std::set<place> order_;
  std::unordered_map<std::uint64_t, one_held> held_;
  std::uint64_t bytes_ = 0;
  std::uint64_t age_ = middle;
  std::uint64_t oldest_ = middle;
};

/// The bytes of a block, which are not changed once they are there.
struct block_bytes {
  explicit block_bytes(std::size_t count)
      : memory(std::make_unique_for_overwrite<std::byte[]>(count)), size(count) {}
  [[nodiscard]] std::span<std::byte> all() const noexcept { return {memory.get(), size}; }

  const std::unique_ptr<std::byte[]> memory;
  const std::size_t size;
};
using shared_block = std::shared_ptr<const block_bytes>;

/// An object, numbered by the cache, and a block of it.
struct block_key {
  std::uint64_t object;
  std::uint64_t block;
  friend auto operator<=>(const block_key&, const block_key&) = default;
  // Written out: nvcc 13 loses the one that comes with the line above.
  friend bool operator==(const block_key& a, const block_key& b) noexcept {
    return a.object == b.object && a.block == b.block;
  }
};

/// Blocks in memory, bounded in bytes. One thread at a time.
class memory_tier {
 public:
  /// Keeps up to `most` bytes.
  explicit memory_tier(std::uint64_t most) : most_(most) {}

  /// The block `key`, whose number is `number` and which is used next at `next_use`; null where it
  /// is not here.
  [[nodiscard]] shared_block find(std::uint64_t number, const block_key& key,
                                  std::uint64_t next_use) {
    const auto found = blocks_.find(number);
    if (found == blocks_.end() || found->second.key != key) return nullptr;
    order_.hold(number, found->second.bytes->size, next_use);
    return found->second.bytes;
  }

  /// Whether the block `key` is here.
  [[nodiscard]] bool holds(std::uint64_t number, const block_key& key) const {
    const auto found = blocks_.find(number);
    return found != blocks_.end() && found->second.key == key;
  }
  /// Whether `keep` would keep a block of so many bytes, which is not here.
  [[nodiscard]] bool would_keep(std::uint64_t bytes, std::uint64_t next_use) const {
    if (bytes > most_) return false;
    return order_.bytes() + bytes <= most_ || next_use <= order_.last_use();
  }
  /// Keeps a block, if it is worth more than what would have to go.
  void keep(std::uint64_t number, const block_key& key, shared_block bytes,
            std::uint64_t next_use) {
    if (bytes->size > most_) return;
    order_.hold(number, bytes->size, next_use);
    blocks_.insert_or_assign(number, kept{key, std::move(bytes)});
    while (order_.bytes() > most_) {
      const std::uint64_t goes = order_.first_to_go();
      order_.drop(goes);
      blocks_.erase(goes);
    }
  }

  /// What is kept, in the order in which it goes.
  [[nodiscard]] eviction_order& order() noexcept { return order_; }

 private:
  struct kept {
    block_key key;
    shared_block bytes;
  };

  std::uint64_t most_;
  eviction_order order_;
  std::unordered_map<std::uint64_t, kept> blocks_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
