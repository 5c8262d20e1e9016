// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/order/sampler.hpp>

/// Sample indices in the order of an epoch.
using indices = std::vector<std::uint64_t>;

/// Returns the complete order of `epoch` for a dataset of `n` samples.
template <penstock::sampler Sampler>
indices epoch_of(const Sampler& sampler, std::uint64_t n, std::uint64_t epoch) {
  indices out(static_cast<std::size_t>(sampler.size(n)));
  const penstock::detail::order_of<Sampler> order = sampler.order(n, epoch);
  order.fill(0, out);
  return out;
}
