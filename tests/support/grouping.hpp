// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

/// A device that groups small batches into shared copy calls. The test sets the number of batches
/// per group; the depth limits it too.
template <class Device>
struct grouping : Device {
  using Device::Device;

  /// Maximum total size of a group of batches; see the concept `device`. A transfer reads the value
  /// at construction.
  static inline std::size_t grouped_bytes = 0;
};
