// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "mixed_kernels.hpp"
#include "step_options.hpp"

namespace mlp {

/// All that a training goes on from: the parameters, what Adam remembers of the steps before, and
/// of a mixed network the gradient scaler and the step under way.
struct network_state {
  precision_choice precision = precision_choice::fp32;
  std::vector<float> parameters;
  std::vector<float> first_moments;
  std::vector<float> second_moments;
  kernel::step_state steps;
  kernel::scaler_state scaler;
  std::uint64_t planned = 0;  ///< the samples of a step, for which the sums below are scaled
  std::vector<float> sums;    ///< the gradients of the batches so far; empty between two steps

  /// Between two steps all sums are 0.
  [[nodiscard]] bool is_between_steps() const noexcept { return scaler.samples == 0; }
};

/// A network can't go on from this state: it is of another precision, or of a step that this
/// network does not make. The message says which.
class state_of_another_network : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace mlp
