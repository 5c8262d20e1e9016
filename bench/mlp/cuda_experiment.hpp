// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>
#include <string>

#include "data.hpp"
#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// Returns the reason why this program cannot train on a GPU here, or no value if it can.
[[nodiscard]] std::optional<std::string> why_no_cuda();

/// Throws what `run_cuda_experiment` throws if there is no GPU, or if this program was built
/// without CUDA.
void require_cuda();

/// Runs `run_experiment` on the first GPU. Throws what `penstock::cuda_device` throws, or
/// `std::runtime_error` in a program that was built without CUDA.
[[nodiscard]] results run_cuda_experiment(const options& chosen, const digit_data& data,
                                          const row_done& done);

}  // namespace mlp
