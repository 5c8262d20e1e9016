// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "results.hpp"
#include "trainer.hpp"

namespace mlp {

/// Throws if a run's trace is not that of the first one.
inline void require_same(const run_trace& first, technique first_mode, const run_trace& other,
                         technique other_mode) {
  if (other == first) return;
  const std::string modes{std::string{name_of(other_mode)} + " and " +
                          std::string{name_of(first_mode)}};
  for (std::size_t i = 0; i < first.losses.size(); ++i) {
    if (other.losses[i] == first.losses[i]) continue;
    throw std::runtime_error(modes + " differ: the loss of sample " + std::to_string(i) +
                             " of the run is " + std::to_string(other.losses[i]) + " and " +
                             std::to_string(first.losses[i]));
  }
  throw std::runtime_error(modes + " differ: equal losses, but not the same parameters");
}

}  // namespace mlp
