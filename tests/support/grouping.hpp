// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

/// A device whose small batches share calls: as many batches as the test specifies and the depth
/// allows.
template <class Device>
struct grouping : Device {
  using Device::Device;

  /// Total bytes of batches that share calls, see `device`. A transfer reads it at construction.
  static inline std::size_t grouped_bytes = 0;
};
