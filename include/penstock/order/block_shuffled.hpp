// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <type_traits>

#include <penstock/core/error.hpp>
#include <penstock/order/detail/block_order.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Every sample once, near to its neighbours: blocks of `block` consecutive samples come in random
/// order, and each block is shuffled inside. For storage that reads runs faster than single samples
/// (disks, networks, compressed shards): a block is read from one place while the page cache holds
/// it. New in every epoch and the same wherever `seed` is.
///
/// Not as good as a shuffle: samples of a block stay within `block` places of each other, so a
/// dataset sorted by class gives batches of few classes. A block of several batches, and of at
/// least some MiB, is a good start. block >= n is a shuffle of all, block == 1 one of single
/// samples; the last block may be shorter and comes at a random place too.
///
/// O(1) memory and resume anywhere, as with `shuffled`. PyTorch: no counterpart in core;
/// WebDataset's shuffle of shards with a buffer is close. `size` and `order` throw `option_error`
/// when `block` is 0, `order` throws std::invalid_argument unless 1 <= n <= 2^63.
struct block_shuffled {
  /// Together with the epoch, determines the order.
  std::uint64_t seed = 0;
  /// Samples a block.
  std::uint64_t block = 1024;

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const {
    require_block();
    return n;
  }
  [[nodiscard]] detail::block_order order(std::uint64_t n, std::uint64_t epoch) const {
    require_block();
    return {n, block, seed, epoch};
  }

 private:
  void require_block() const {
    if (block == 0) throw option_error("block", "must be at least 1, is 0");
  }
};

static_assert(std::is_aggregate_v<block_shuffled>);
static_assert(epoch_order<detail::block_order>);
static_assert(sampler<block_shuffled>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
