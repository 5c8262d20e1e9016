// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/cache/detail/eviction_order.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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
