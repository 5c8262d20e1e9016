// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>

#include <penstock/load/options.hpp>

/// Batches of ten samples, with four batches read ahead.
inline penstock::loader_options ten_each(std::size_t workers) {
  return {.batch_size = 10, .workers = workers, .prefetch = 4};
}
