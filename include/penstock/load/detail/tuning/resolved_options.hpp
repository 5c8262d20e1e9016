// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>

#include <penstock/load/options.hpp>
#include <penstock/threads/support/cpus.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// The options with a number in place of `workers = automatic`: the most that may take part, which
/// is then in `tuning.cpus` too. `usable` cores are there; one of them is the step's. Options
/// without it are unchanged.
[[nodiscard]] inline loader_options resolved(loader_options options, std::size_t usable) {
  if (options.workers != automatic) return options;
  if (options.tuning.cpus == automatic) {
    options.tuning.cpus = std::clamp<std::size_t>(usable, 2, most_workers + 1) - 1;
  }
  options.workers = options.tuning.cpus;
  return options;
}
/// `options` with the cores of this machine in place of `automatic`. Asks the system; reads files.
[[nodiscard]] inline loader_options resolved(const loader_options& options) {
  const bool asks = options.workers == automatic && options.tuning.cpus == automatic;
  return resolved(options, asks ? usable_cpus() : 1);
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
