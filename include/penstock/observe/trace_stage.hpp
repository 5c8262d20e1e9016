// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A stage of a batch, or a wait of a thread.
enum class trace_stage : std::uint8_t {
  read,             ///< a worker (without workers, the consumer) reads a chunk
  wait_for_demand,  ///< a worker waits until another batch is wanted
  wait_for_slot,    ///< a worker waits for a free host slot; the loop, for a slot for its results
  wait_for_copy,    ///< a worker waits for the copy out of a slot; the consumer, for the batch's
                    ///< copy; a worker of `results`, for the copy of the next results
  wait_for_opener,  ///< a worker waits until another worker has opened the batch
  wait_while_inactive,  ///< an inactive worker sleeps, see `automatic`
  wait_for_batch,       ///< the consumer waits for the batch to be complete
  wait_for_lease,       ///< the consumer waits for a lease to end
  copy,                 ///< the consumer's thread queues the copy and the transform; a worker of
                        ///< `results` queues the copy of a batch's results
  transform,            ///< the consumer's thread queues the transform, within `copy`
  step,                 ///< the loop's body: from the batch's hand-out to the next `++`
  lease,                ///< a slot is leased, from hand-out to release
  setting,              ///< the loader runs with these workers and this prefetch, see `automatic`
  depth,                ///< the transfer runs with so many device slots, see `automatic`
  consume,              ///< a worker of `results` consumes a batch's results
};

/// Returns the name of the stage in words, such as "wait for slot", or an empty text for an invalid
/// value.
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
