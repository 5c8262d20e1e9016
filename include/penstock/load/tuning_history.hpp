// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The current values of the options that are `automatic`: `loader_options::workers` and
/// `prefetch`, or `transfer_options::depth`.
struct tuning_setting {
  std::size_t workers = 0;   ///< active workers; the others sleep; 0 for a transfer
  std::size_t prefetch = 0;  ///< batches that are read ahead of the consumer; 0 for a transfer
  std::size_t depth = 0;     ///< device slots that are filled in rotation; 0 for a loader
  friend bool operator==(const tuning_setting&, const tuning_setting&) = default;
};

/// The result of a move.
enum class tuning_reason : std::uint8_t {
  estimated,  ///< kept: Little's law requires it, and batches did not measurably come later
  faster,     ///< kept: batches came sooner by more than the noise
  no_slower,  ///< kept: fewer readers, and batches came no later
  went_back,  ///< not kept: no gain
};

/// A move: a setting that was tried, and the result.
struct tuning_move {
  /// For a loader, the number of batches that it had read when the move ended, including batches
  /// that no loop took. For a transfer, the number of batches that it had handed out.
  std::uint64_t batch = 0;
  tuning_setting from;                           ///< the setting before
  tuning_setting to;                             ///< the setting that was tried
  tuning_reason why = tuning_reason::went_back;  ///< the reason why `to` was kept or not
  std::chrono::nanoseconds time_from{0};         ///< time of a batch with `from`
  std::chrono::nanoseconds time_to{0};           ///< time of a batch with `to`

  /// Returns true if `to` was kept.
  [[nodiscard]] bool kept() const noexcept { return why != tuning_reason::went_back; }
};

/// The settings that `automatic` has chosen so far, from `loader::tuning()` or
/// `transfer::tuning()`. The object is a copy, which does not change.
struct tuning_history {
  /// The best setting so far. During a move, another setting is in use. Without `automatic`, this
  /// is the setting that the loader or the transfer was made with.
  tuning_setting now;
  std::uint64_t count = 0;         ///< number of moves so far, including moves that are not listed
  std::vector<tuning_move> moves;  ///< the last moves, at most 32, oldest first
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
