// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/penstock.hpp>

#include "flow/state_machine/chaotic.hpp"

namespace stress {

namespace ps = penstock;

/// The settings that determine the order of batches.
struct identity {
  std::uint64_t samples = 1;
  std::size_t batch_size = 1;
  std::uint64_t seed = 0;
  std::uint64_t order_seed = 0;
  ps::last_batch last = ps::last_batch::keep;
  bool operator==(const identity&) const = default;

  [[nodiscard]] std::uint64_t batches() const {
    const bool has_rest = samples % batch_size != 0 && last != ps::last_batch::drop;
    return samples / batch_size + (has_rest ? 1 : 0);
  }
};

/// All settings of a loader and its feed.
struct setup {
  identity who;
  chaotic data;
  ps::loader_options options;
  std::size_t depth = 3;
};

}  // namespace stress
