// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// What `loader_options::workers` and `prefetch`, or `transfer_options::depth`, are at the moment
/// where they are `automatic`.
struct tuning_setting {
  std::size_t workers = 0;   ///< that take part; the others sleep; of a transfer 0
  std::size_t prefetch = 0;  ///< batches that are read ahead of the consumer; of a transfer 0
  std::size_t depth = 0;     ///< device slots that are filled by turns; of a loader 0
  friend bool operator==(const tuning_setting&, const tuning_setting&) = default;
};

/// How a move ended.
enum class tuning_reason : std::uint8_t {
  estimated,  ///< kept: Little's law asked for it, and batches came no later, as far as was seen
  faster,     ///< kept: batches came sooner by more than the noise
  no_slower,  ///< kept: fewer readers, and batches came no later
  went_back,  ///< not kept: nothing was gained
};

/// A setting that was tried, and what came of it.
struct tuning_move {
  /// Batches that a loader had read by then, those that no loop took included; that a transfer had
  /// handed out.
  std::uint64_t batch = 0;
  tuning_setting from;                           ///< before
  tuning_setting to;                             ///< tried
  tuning_reason why = tuning_reason::went_back;  ///< whether it was kept, and why
  std::chrono::nanoseconds time_from{0};         ///< a batch took with `from`
  std::chrono::nanoseconds time_to{0};           ///< a batch took with `to`

  /// Whether `to` was kept.
  [[nodiscard]] bool kept() const noexcept { return why != tuning_reason::went_back; }
};

/// What `automatic` has come to so far, from `loader::tuning()` or `transfer::tuning()`. A copy: it
/// does not change.
struct tuning_history {
  /// Kept so far; while a move is tried, another one is in use. Without `automatic` what the loader
  /// or the transfer was made with.
  tuning_setting now;
  std::uint64_t count = 0;         ///< moves so far, those that are not listed included
  std::vector<tuning_move> moves;  ///< the last ones, at most 32, the oldest first
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
