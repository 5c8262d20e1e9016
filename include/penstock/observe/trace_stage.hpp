// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Stages of a batch, and waits of a thread.
enum class trace_stage : std::uint8_t {
  read,                 ///< a worker reads a chunk, or the consumer without workers
  wait_for_demand,      ///< a worker waits until another batch is needed
  wait_for_slot,        ///< a worker waits for a host slot, or the loop for a result slot
  wait_for_copy,        ///< a thread waits for a copy out of a host slot, to a device slot, or of
                        ///< results
  wait_for_opener,      ///< a worker waits until another worker has opened the batch
  wait_while_inactive,  ///< an inactive worker sleeps (see `automatic`)
  wait_for_batch,       ///< the consumer waits until the batch is complete
  wait_for_lease,       ///< the consumer waits until a lease ends
  copy,                 ///< a thread queues a copy to a device slot (including the transform), or
                        ///< of results
  transform,            ///< the consumer thread queues the transform, within `copy`
  step,                 ///< the loop body, from the delivery of the batch to the next `++`
  lease,                ///< a slot is leased, from delivery to release
  setting,              ///< the loader uses a certain number of workers and prefetched batches
  depth,                ///< the transfer uses a certain number of device slots
  consume,              ///< a worker of `results` consumes a batch's results
};

/// Returns the name of the stage in words, such as "wait for slot", or "" for an invalid value.
[[nodiscard]] constexpr std::string_view name_of(trace_stage stage) noexcept {
  constexpr std::array<std::string_view, 15> names{
      "read",     "wait for demand", "wait for slot",  "wait for copy", "wait for opener",
      "inactive", "wait for batch",  "wait for lease", "copy",          "transform",
      "step",     "lease",           "setting",        "depth",         "consume"};
  static_assert(names.size() == static_cast<std::size_t>(trace_stage::consume) + 1);
  const auto place = static_cast<std::size_t>(stage);
  return place < names.size() ? names[place] : std::string_view{};
}

}  // namespace PENSTOCK_ABI
}  // namespace penstock
