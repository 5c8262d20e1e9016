// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Which batch a lease holds. Numbers count from 0.
struct batch_info {
  /// The epoch.
  std::uint64_t epoch = 0;
  std::uint64_t batch = 0;     ///< the batch within its epoch
  std::size_t size = 0;        ///< its samples
  std::size_t valid_size = 0;  ///< its samples without the padding (`partial_batch::pad`)
  std::size_t skipped = 0;     ///< samples left out of it as unreadable (`error_action::skip`)
  /// A word of the source's own, which travels to the device batch: what the library does with a
  /// batch does not depend on it, nor does a state.
  std::uint64_t tag = 0;
};

/// A place in the order of all batches: batch `batch` of epoch `epoch`.
struct batch_position {
  /// The epoch.
  std::uint64_t epoch = 0;
  /// The batch within its epoch.
  std::uint64_t batch = 0;
  friend bool operator==(const batch_position&, const batch_position&) = default;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
