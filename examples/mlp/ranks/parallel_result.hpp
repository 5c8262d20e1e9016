// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mlp {

/// What a run leaves behind, the same on all ranks.
struct parallel_result {
  std::uint64_t steps = 0;    ///< of this run, without those before its checkpoint
  double last_loss = 0;       ///< the mean over the last global batch
  std::uint64_t batches = 0;  ///< a hash of the samples of all global batches in order
  std::vector<float> parameters;
  std::string resumed;  ///< the checkpoint it went on from; "" for none
};

}  // namespace mlp
