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

/// Next use of a block that will not be used again.
inline constexpr std::uint64_t never = (std::numeric_limits<std::uint64_t>::max)();

/// The cached blocks in eviction order. The block whose next use is farthest in the future, or
/// never, is evicted first, which is optimal for blocks of equal size (Belady 1966). Among blocks
/// with the same next use, the least recently used block is evicted first. Not thread-safe.
class eviction_order {
 public:
  /// Inserts `block`, which has `bytes` bytes, as the most recently used block, with the next use
  /// `next_use`. Updates the block if it is already present. If memory runs out, throws and does
  /// not insert the block.
  void hold(std::uint64_t block, std::uint64_t bytes, std::uint64_t next_use) {
    const auto found = held_.find(block);
    if (found == held_.end()) return put({next_use, --age_, block}, bytes);
    bytes_ = bytes_ - found->second.bytes + bytes;
    found->second.bytes = bytes;
    move_to(found->second, {next_use, --age_, block});
  }
  /// Inserts `block` as the least recently used block. The block must not be present.
  void hold_as_oldest(std::uint64_t block, std::uint64_t bytes, std::uint64_t next_use) {
    put({next_use, ++oldest_, block}, bytes);
  }
  /// Sets the next use of each block to `next_use(block)`. Does not change the block age.
  template <class NextUse>
  void rearrange(const NextUse& next_use) {
    for (auto& [block, one] : held_) renew(one, next_use(block));
  }
  /// Sets the next use of `block` if it is present. Does not change its age.
  void renew(std::uint64_t block, std::uint64_t next_use) {
    const auto found = held_.find(block);
    if (found != held_.end()) renew(found->second, next_use);
  }
  /// Removes `block` if it is present.
  void drop(std::uint64_t block) {
    const auto found = held_.find(block);
    if (found == held_.end()) return;
    bytes_ -= found->second.bytes;
    order_.erase(found->second.at);
    held_.erase(found);
  }
  template <class Stays>
  void keep_only(const Stays& stays) {
    for (auto next = held_.begin(); next != held_.end();) {
      const std::uint64_t block = next++->first;
      if (!stays(block)) drop(block);
    }
  }

  /// Returns true if `block` is present.
  [[nodiscard]] bool holds(std::uint64_t block) const { return held_.contains(block); }
  /// Returns the total size of the blocks in bytes.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns the next block to evict. At least one block must be present.
  [[nodiscard]] std::uint64_t first_to_go() const { return std::get<2>(*order_.rbegin()); }
  /// Returns the next use of the block that will be evicted next. At least one block must be
  /// present.
  [[nodiscard]] std::uint64_t last_use() const { return std::get<0>(*order_.rbegin()); }

 private:
  // Next use, age (larger if older), and block number.
  using place = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
  struct one_held {
    place at;
    std::uint64_t bytes;
  };

  void renew(one_held& one, std::uint64_t next_use) {
    move_to(one, {next_use, std::get<1>(one.at), std::get<2>(one.at)});
  }
  void move_to(one_held& one, const place& to) {
    // `extract` does not allocate, so a failure cannot lose the block.
    auto node = order_.extract(one.at);
    node.value() = one.at = to;
    order_.insert(std::move(node));
  }

  // Inserts into both containers or into neither, because a block in only one of them would never
  // be evicted.
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

/// The bytes of a block, immutable after they were read.
struct block_bytes {
  explicit block_bytes(std::size_t count)
      : memory(std::make_unique_for_overwrite<std::byte[]>(count)), size(count) {}
  [[nodiscard]] std::span<std::byte> all() const noexcept { return {memory.get(), size}; }

  const std::unique_ptr<std::byte[]> memory;
  const std::size_t size;
};
using shared_block = std::shared_ptr<const block_bytes>;

/// Identifies a block by its object number and block index.
struct block_key {
  std::uint64_t object;
  std::uint64_t block;
  friend auto operator<=>(const block_key&, const block_key&) = default;
  // Defined explicitly, because nvcc 13 loses the defaulted operator.
  friend bool operator==(const block_key& a, const block_key& b) noexcept {
    return a.object == b.object && a.block == b.block;
  }
};

/// The memory cache, limited in size. Not thread-safe.
class memory_tier {
 public:
  /// Caches up to `max` bytes.
  explicit memory_tier(std::uint64_t max) : max_(max) {}

  /// Returns the block `key` with the number `number`, and sets its next use to `next_use`. Returns
  /// null if the block is not in memory.
  [[nodiscard]] shared_block find(std::uint64_t number, const block_key& key,
                                  std::uint64_t next_use) {
    const auto found = blocks_.find(number);
    if (found == blocks_.end() || found->second.key != key) return nullptr;
    order_.hold(number, found->second.bytes->size, next_use);
    return found->second.bytes;
  }

  /// Returns true if the block `key` is in memory.
  [[nodiscard]] bool holds(std::uint64_t number, const block_key& key) const {
    const auto found = blocks_.find(number);
    return found != blocks_.end() && found->second.key == key;
  }
  /// Returns true if `keep` would cache a new block of `bytes` bytes.
  [[nodiscard]] bool would_keep(std::uint64_t bytes, std::uint64_t next_use) const {
    if (bytes > max_) return false;
    return order_.bytes() + bytes <= max_ || next_use <= order_.last_use();
  }
  /// Caches a block, unless it would be evicted before all blocks in memory.
  void keep(std::uint64_t number, const block_key& key, shared_block bytes,
            std::uint64_t next_use) {
    if (bytes->size > max_) return;
    order_.hold(number, bytes->size, next_use);
    blocks_.insert_or_assign(number, kept{key, std::move(bytes)});
    while (order_.bytes() > max_) {
      const std::uint64_t goes = order_.first_to_go();
      order_.drop(goes);
      blocks_.erase(goes);
    }
  }

  /// Returns the eviction order.
  [[nodiscard]] eviction_order& order() noexcept { return order_; }

 private:
  struct kept {
    block_key key;
    shared_block bytes;
  };

  std::uint64_t max_;
  eviction_order order_;
  std::unordered_map<std::uint64_t, kept> blocks_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
