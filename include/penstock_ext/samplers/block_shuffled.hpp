// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <penstock/core/error.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/sampler.hpp>
#include <penstock/order/support/permutation.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The order of `block_shuffled` in one epoch. Uses O(1) memory and is trivially copyable.
///
/// A permutation orders the full blocks. The short block at the end of the dataset, if any, is
/// inserted at a uniformly random position. Therefore all block orders are equally likely, and no
/// inverse permutation is needed.
class block_order {
 public:
  /// Creates the order of `n` samples in blocks of `block` samples. `block` must be at least 1.
  /// Throws std::invalid_argument unless 1 <= n <= 2^63.
  block_order(std::uint64_t n, std::uint64_t block, std::uint64_t seed, std::uint64_t epoch)
      : key_{.seed = seed, .epoch = epoch, .stage = block_shuffle_stage},
        block_(block),
        full_(require_size(n) / block),
        short_size_(n % block),
        blocks_(drawn_permutation((std::max)(full_, std::uint64_t{1}), key_, of_blocks)) {
    sample_generator gen{key_, of_short_block};
    if (short_size_ != 0) short_begin_ = uniform(gen, std::uint64_t{0}, full_) * block_;
  }

  /// Writes the sample indices starting at position `first`. Each block costs as much as a few tens
  /// of samples.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    while (!out.empty()) {
      const auto [which, begin, length] = block_at(first);
      const auto count =
          static_cast<std::size_t>((std::min)(std::uint64_t{out.size()}, begin + length - first));
      const std::span<std::uint64_t> part = out.first(count);
      drawn_permutation(length, key_, which).fill(first - begin, part);
      for (std::uint64_t& index : part) index += which * block_;
      out = out.subspan(count);
      first += count;
    }
  }

 private:
  struct placed_block {
    std::uint64_t which;   // block index in the dataset
    std::uint64_t begin;   // position of the first sample in the order
    std::uint64_t length;  // number of samples
  };

  // Random streams are numbered by block from 0, so the last two numbers are available for other
  // draws.
  static constexpr std::uint64_t of_blocks = (std::numeric_limits<std::uint64_t>::max)();
  static constexpr std::uint64_t of_short_block = of_blocks - 1;

  static std::uint64_t require_size(std::uint64_t n) {
    if (n == 0 || n > std::uint64_t{1} << 63) {
      throw std::invalid_argument("block_shuffled: expected 1 <= n <= 2^63, found n = " +
                                  std::to_string(n));
    }
    return n;
  }

  /// Returns the block that contains position `k`.
  [[nodiscard]] placed_block block_at(std::uint64_t k) const noexcept {
    const bool behind_short = k >= short_begin_;
    if (behind_short && k - short_begin_ < short_size_) return {full_, short_begin_, short_size_};
    const std::uint64_t in_full = behind_short ? k - short_size_ : k;
    return {blocks_(in_full / block_), k - in_full % block_, block_};
  }

  random_key key_;
  std::uint64_t block_;
  std::uint64_t full_;  // number of full blocks
  std::uint64_t short_size_;
  std::uint64_t short_begin_ = 0;  // position of the short block's first sample
  permutation blocks_;             // order of the full blocks
};

}  // namespace detail

/// Shuffles blocks of consecutive samples, and the samples within each block. Each sample appears
/// once. Suits storage on which sequential reads are faster than random reads (disks, networks,
/// compressed shards), because the page cache holds a block while it is read. The order depends on
/// `seed` and differs in each epoch.
///
/// Less random than a full shuffle: the samples of a block stay within `block` positions of each
/// other, so a dataset sorted by class results in batches with few classes. Blocks of several
/// batches and at least some MiB are a good start. Both block >= n and block == 1 are full
/// shuffles.
///
/// Like `shuffled`, uses O(1) memory and can resume anywhere. PyTorch has no counterpart in core.
/// WebDataset's shard shuffle with a buffer is similar. `size` and `order` throw `option_error` if
/// `block` is 0. `order` throws std::invalid_argument unless 1 <= n <= 2^63.
struct block_shuffled {
  /// Seed that determines the order, together with the epoch.
  std::uint64_t seed = 0;
  /// Number of samples in a block.
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
    if (block == 0) throw option_error("block", "must be at least 1, but is 0");
  }
};

static_assert(std::is_aggregate_v<block_shuffled>);
static_assert(epoch_order<detail::block_order>);
static_assert(sampler<block_shuffled>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
