// SPDX-License-Identifier: BSL-1.0
// Replaces cuda_experiment.cu on machines without a CUDA compiler.
#include <stdexcept>

#include "cuda_experiment.hpp"

namespace mlp {

std::optional<std::string> why_no_cuda() { return "this program was built without CUDA"; }

void require_cuda() {
  throw std::runtime_error("--device cuda: " + *why_no_cuda() +
                           ": it needs a CUDA toolkit 12.4 or newer, with nvcc, when it is built");
}

results run_cuda_experiment(const options&, const digit_data&, const row_done&) {
  require_cuda();
  return {};
}

}  // namespace mlp
