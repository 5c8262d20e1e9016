// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <vector>

#include "options.hpp"

namespace mlp {

/// What `--variants` runs after `chosen`: the overlapped loop alone, once with each other step and
/// once with each type that images travel as. A run is plain: no files, no costs of the stages.
///
/// On CUDA the first one is the step in float of the kernels that the other steps have, which take
/// an operation a launch. Where `chosen` feeds bytes, the first one whose images are floats sends
/// them as they are.
[[nodiscard]] std::vector<options> variants_of(const options& chosen, bool is_on_cuda);

}  // namespace mlp
