// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace mlp {

/// In which order the gradients of a global batch are added up.
enum class reduction {
  fast,     ///< as the collective does it: the last bits depend on how many ranks there are
  ordered,  ///< by eighths of the global batch in their order: the same bits for 1, 2, 4, 8 ranks
};

}  // namespace mlp
