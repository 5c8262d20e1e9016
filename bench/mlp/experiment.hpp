// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "data.hpp"
#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// Trains in each chosen mode on the chosen device and tests the result. Calls `done` with the
/// results so far after every run of a mode. Throws `std::runtime_error` if the losses or
/// parameters of two modes are not bit-identical, or if CUDA is requested in a program built
/// without it. Throws errors derived from `penstock::cuda_error`.
[[nodiscard]] results run_experiment(
    const options& chosen, const digit_data& data,
    const row_done& done = [](const results&, const mode_result&) {});

}  // namespace mlp
