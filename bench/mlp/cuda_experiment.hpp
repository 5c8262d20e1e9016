// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>
#include <string>

#include "data.hpp"
#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// Why this program can't train on a GPU here; nothing where it can.
[[nodiscard]] std::optional<std::string> why_no_cuda();

/// Throws what `run_cuda_experiment` throws where there is no GPU, or no CUDA in this program.
void require_cuda();

/// `run_experiment` on the first GPU. Throws what `penstock::cuda_device` throws, or
/// `std::runtime_error` in a program that was built without CUDA.
[[nodiscard]] results run_cuda_experiment(const options& chosen, const digit_data& data,
                                          const row_done& done);

}  // namespace mlp
