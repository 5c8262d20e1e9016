// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <penstock/load/detail/plan/limits.hpp>
#include <penstock/load/options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The samples of a run where each worker gets two of a batch, so that all help the oldest batch
/// and none waits long for the last run.
inline std::size_t run_share(const loader_options& options) noexcept {
  if (options.workers <= 1) return options.batch_size;
  return (options.batch_size + 2 * options.workers - 1) / (2 * options.workers);
}

/// `run`, within the limits of a batch and of a claim.
inline std::size_t possible_run(std::size_t run, std::size_t batch) noexcept {
  constexpr std::size_t runs = most_runs;
  run = (std::max)(run, (batch + runs - 1) / runs);
  return (std::min)(run, batch);
}

/// The most samples that a worker claims at a time: `run_share`, but at least a page of bytes, so
/// that a claim costs little beside its work where reading is no more than copying.
inline std::size_t run_size(const loader_options& options, std::size_t sample_bytes) noexcept {
  constexpr std::size_t least_bytes = 4096;
  const std::size_t page = (least_bytes + sample_bytes - 1) / sample_bytes;
  const std::size_t run = options.run == 0 ? (std::max)(run_share(options), page) : options.run;
  return possible_run(run, options.batch_size);
}

/// The fewest samples that a worker claims at a time: `run_share`, where reading a sample takes
/// longer than its bytes say.
inline std::size_t least_run_size(const loader_options& options,
                                  std::size_t sample_bytes) noexcept {
  if (options.run != 0) return run_size(options, sample_bytes);
  return possible_run(run_share(options), options.batch_size);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
