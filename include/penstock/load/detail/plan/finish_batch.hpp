// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/core/batch.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/order/random.hpp>
#include <penstock/order/support/stages.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Does with a batch that is read, `all`, what its dataset does with whole batches, see
/// `map_batch`. What that throws stays with the batch. A function of its own, so that no arithmetic
/// moves out of what flushes denormals around its call.
template <dataset D, class Work>
[[gnu::noinline]] void finish_batch(const D& data, Work& batch,
                                    const batch_view<typename D::record_type>& all,
                                    std::uint64_t seed) noexcept {
  if (!batch.order || batch.has_error() || all.size() == 0) return;
  try {
    sample_generator rng{{seed, batch.info.epoch, batch_stage}, batch.info.batch};
    data.finish_batch(all, rng);
  } catch (...) {
    batch.note_error({"batch", batch.info.epoch, batch.info.batch});
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
