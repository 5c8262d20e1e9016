// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The current values of the `automatic` options: `loader_options::workers` and `prefetch`, or
/// `transfer_options::depth`.
struct tuning_setting {
  std::size_t workers = 0;   ///< number of active workers, while the others sleep; 0 for a transfer
  std::size_t prefetch = 0;  ///< number of batches read ahead of the consumer; 0 for a transfer
  std::size_t depth = 0;     ///< number of device slots in use; 0 for a loader
  friend bool operator==(const tuning_setting&, const tuning_setting&) = default;
};

/// The result of a move.
enum class tuning_reason : std::uint8_t {
  /// Accepted, because Little's law requires it, and batches were not measurably slower.
  estimated,
  faster,     ///< accepted, because batches were faster by more than the noise
  no_slower,  ///< accepted, because it needs fewer readers, and batches were not slower
  went_back,  ///< rejected without a gain
};

/// A move: a setting that was tried, and the result.
struct tuning_move {
  /// For a loader, the number of batches read when the move ended, including batches that no loop
  /// took. For a transfer, the number of batches delivered.
  std::uint64_t batch = 0;
  tuning_setting from;                           ///< setting before the move
  tuning_setting to;                             ///< setting that was tried
  tuning_reason why = tuning_reason::went_back;  ///< reason why `to` was accepted or rejected
  std::chrono::nanoseconds time_from{0};         ///< batch time with `from`
  std::chrono::nanoseconds time_to{0};           ///< batch time with `to`

  /// Returns true if `to` was accepted.
  [[nodiscard]] bool kept() const noexcept { return why != tuning_reason::went_back; }
};

/// A snapshot of the settings that `automatic` has chosen, returned by `loader::tuning()` or
/// `transfer::tuning()`.
struct tuning_history {
  /// The best setting so far. During a move, another setting is in use. Without `automatic`, this
  /// is the setting from the options.
  tuning_setting now;
  std::uint64_t count = 0;         ///< number of moves so far, including moves that are not listed
  std::vector<tuning_move> moves;  ///< most recent moves, at most 32, oldest first
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
