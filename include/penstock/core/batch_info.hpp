// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Identifies the batch in a lease. Epochs and batches are numbered from 0.
struct batch_info {
  /// The epoch.
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;     ///< batch index within the epoch
  std::size_t size = 0;        ///< number of samples
  std::size_t valid_size = 0;  ///< number of samples without padding (`last_batch::pad`)
  /// Number of unreadable samples that were skipped (`error_action::skip`).
  std::size_t skipped = 0;
  /// A user-defined value that a `batch_source` may set. The value is copied to the `device_batch`.
  /// The library does not interpret it, and saved states do not include it.
  std::uint64_t tag = 0;
  /// Number of batches that were dropped immediately before this batch. Always 0 for a loader.
  std::uint64_t dropped = 0;
};

/// A position in the batch sequence: batch `batch` of epoch `epoch`.
struct batch_position {
  /// The epoch.
  std::uint64_t epoch = 0;
  /// The batch index within the epoch.
  std::uint64_t batch = 0;
  friend bool operator==(const batch_position&, const batch_position&) = default;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
