// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Identifies the batch that a lease holds. All numbers count from 0.
struct batch_info {
  /// The epoch.
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;     ///< the batch's number in its epoch
  std::size_t size = 0;        ///< the number of samples
  std::size_t valid_size = 0;  ///< the number of samples without the padding (`last_batch::pad`)
  std::size_t skipped = 0;     ///< unreadable samples left out of the batch (`error_action::skip`)
  /// A value that a `batch_source` may set for its user. The value travels with the batch to the
  /// device. The library does not interpret it, and no saved state includes it.
  std::uint64_t tag = 0;
  /// Number of batches that were dropped immediately before this batch. A loader drops none.
  std::uint64_t dropped = 0;
};

/// A position in the sequence of all batches: batch `batch` of epoch `epoch`.
struct batch_position {
  /// The epoch.
  std::uint64_t epoch = 0;
  /// The batch's number in its epoch.
  std::uint64_t batch = 0;
  friend bool operator==(const batch_position&, const batch_position&) = default;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
