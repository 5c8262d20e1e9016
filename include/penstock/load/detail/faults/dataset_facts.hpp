// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include <penstock/data/dataset.hpp>
#include <penstock/data/support/dataset_members.hpp>
#include <penstock/data/support/dataset_ref.hpp>
#include <penstock/load/detail/faults/read_guard.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Whether a run that fails is sure to name the sample: read one by one by `read_run` itself. Below
/// an adaptor, a dataset that reads runs names the run's first where it can't tell.
template <dataset D>
inline constexpr bool names_failed_sample = !reads_runs<D> && !reads_runs_in_context<D>;
template <dataset D>
inline constexpr bool names_failed_sample<dataset_ref<D>> = names_failed_sample<D>;

/// What a `read_guard` has to know of `data`, which has `size` samples and must outlive it.
template <dataset D>
[[nodiscard]] guarded_data facts_of(const D& data, std::uint64_t size) {
  return {.size = size,
          .base_sizes = base_sizes_of(data),
          .names_failed_sample = names_failed_sample<D>,
          .origin = [&data](std::uint64_t sample) { return origin_of(data, sample); }};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
