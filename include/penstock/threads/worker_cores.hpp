// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstring>
#include <optional>
#include <string>

#include <penstock/core/version.hpp>
#include <penstock/threads/cpu_list.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Whether the workers of a loader are bound to cores next to its device, or why they are not.
enum class core_binding {
  bound,          ///< they are
  not_asked,      ///< `worker_placement::anywhere`
  no_node,        ///< the device has no NUMA node of the host's, or does not know it
  no_workers,     ///< there are none: the consumer reads
  unknown_cores,  ///< the system does not say which cores the node has
  outside_mask,   ///< the process may run on none of the node's cores
  within_node,    ///< the process may run on no others: nothing is to be done
  refused,        ///< the system refused to say the process's cores, or to bind to some of them
};

/// Where the workers of a loader run: see `loader_options::tuning.placement` and
/// `loader::footprint`. A value that owns its memory.
struct worker_cores {
  core_binding binding = core_binding::no_node;  ///< whether they are bound, or why they are not
  std::optional<int> node = {};  ///< the host's NUMA node next to the device, as Linux numbers it
  /// `bound`, `within_node`: those that they run on; `refused`: those that they were to run on, as
  /// far as they are known; else none, and they run anywhere that the process may.
  cpu_list cores = {};
  int error_number = 0;  ///< `refused`: what errno said

  friend bool operator==(const worker_cores&, const worker_cores&) = default;
};

/// A sentence for people: "workers on node 1, cores 8-15", or that they run anywhere and why.
[[nodiscard]] inline std::string to_text(const worker_cores& workers) {
  const std::string node = "node " + std::to_string(workers.node.value_or(-1));
  const std::string anywhere = "workers anywhere: ";
  switch (workers.binding) {
    case core_binding::bound:
      return "workers on " + node + ", cores " + to_text(workers.cores);
    case core_binding::within_node:
      return "workers on " + node + ", cores " + to_text(workers.cores) +
             ", as the process is allowed";
    case core_binding::not_asked:
      return anywhere + "worker_placement::anywhere was asked for";
    case core_binding::no_node:
      return anywhere + "the device has no NUMA node";
    case core_binding::no_workers:
      return "no workers: the consumer reads, anywhere";
    case core_binding::unknown_cores:
      return anywhere + "the system does not say which cores " + node + " has";
    case core_binding::outside_mask:
      return anywhere + "the process may not run on " + node;
    case core_binding::refused:
      return anywhere + "the system refused " + node +
             (workers.cores.empty() ? "" : ", cores " + to_text(workers.cores)) + ": " +
             std::strerror(workers.error_number);
  }
  return {};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
