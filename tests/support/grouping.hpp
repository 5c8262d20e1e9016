// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

/// A device on which small batches share calls. The test and the depth limit the number of batches
/// in a group.
template <class Device>
struct grouping : Device {
  using Device::Device;

  /// Total bytes of batches that share calls, see `device`. A transfer reads it at construction.
  static inline std::size_t grouped_bytes = 0;
};
