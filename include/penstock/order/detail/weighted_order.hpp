// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/order/detail/alias_table.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/support/stages.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The draws of one epoch of `weighted`. Refers to the table of the sampler that made it.
class weighted_order {
 public:
  /// Draws from `table` with the bits of (seed, epoch, place).
  weighted_order(const alias_table& table, std::uint64_t seed, std::uint64_t epoch) noexcept
      : table_(&table), key_{.seed = seed, .epoch = epoch, .stage = weighted_stage} {}

  /// The samples from the place `first` of the order on; every place is a draw of its own.
  void fill(std::uint64_t first, std::span<std::uint64_t> out) const noexcept {
    const auto last = static_cast<std::uint32_t>(table_->columns().size() - 1);
    // Two loops, so that the reads of a large table, each a miss of the cache, overlap.
    for (std::size_t i = 0; i < out.size(); ++i) {
      sample_generator gen{key_, first + i};
      const std::uint64_t which = uniform(gen, std::uint32_t{0}, last);
      out[i] = which << 32 | gen();
    }
    for (std::uint64_t& place : out) {
      place =
          table_->at(static_cast<std::uint32_t>(place >> 32), static_cast<std::uint32_t>(place));
    }
  }

 private:
  const alias_table* table_;
  random_key key_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
