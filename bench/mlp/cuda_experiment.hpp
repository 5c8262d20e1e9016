// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>
#include <string>

#include "data.hpp"
#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// Returns the reason why this program cannot train on a GPU here, or an empty optional if it can.
[[nodiscard]] std::optional<std::string> why_no_cuda();

/// Throws the same exceptions as `run_cuda_experiment` if there is no GPU, or if this program was
/// built without CUDA.
void require_cuda();

/// Runs `run_experiment` on the first GPU. Propagates exceptions from `penstock::cuda_device`.
/// Throws `std::runtime_error` if the program was built without CUDA.
[[nodiscard]] results run_cuda_experiment(const options& chosen, const digit_data& data,
                                          const row_done& done);

}  // namespace mlp
