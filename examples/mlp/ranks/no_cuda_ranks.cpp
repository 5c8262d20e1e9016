// SPDX-License-Identifier: BSL-1.0
// In the place of cuda_ranks.cu, where there is no nvcc, cuBLAS or NCCL.
#include <stdexcept>

#include "cuda_ranks.hpp"

namespace mlp {

std::optional<std::string> why_no_cuda_ranks() {
  return "the program was built without CUDA or without NCCL";
}

parallel_result train_on_cuda(const digit_source&, const penstock::world&, host_ranks&,
                              const rank_options&) {
  throw std::runtime_error(why_no_cuda_ranks().value());
}

}  // namespace mlp
