// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <penstock/core/batch_info.hpp>
#include <penstock/load/detail/plan/epoch_plan.hpp>
#include <penstock/order/sampler.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The dataset indices of the samples of `batch` from its place `begin` on, in the `order` of its
/// epoch. After the end of the epoch (`partial_batch::pad`) come those of its start.
template <epoch_order Order>
void pick_samples(const Order& order, const epoch_plan& plan, const batch_info& batch,
                  std::size_t begin, std::span<std::uint64_t> out) noexcept {
  // Neither sum may wrap, whatever the size: a batch starts before the end of the epoch.
  std::uint64_t k = batch.batch * plan.batch_size();
  const std::uint64_t left = plan.samples() - k;
  k = begin < left ? k + begin : (begin - left) % plan.samples();
  while (!out.empty()) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), plan.samples() - k));
    order.fill(k, out.first(count));
    out = out.subspan(count);
    k = 0;  // at the end of the epoch, if not of the batch
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
