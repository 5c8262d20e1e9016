// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "data.hpp"
#include "options.hpp"
#include "results.hpp"

namespace mlp {

/// Trains in each chosen mode on the chosen device, and tests what was learnt. `done` is told what
/// has been found so far, after every run of a mode. Throws
/// `std::runtime_error` if the modes differ in a single bit of a loss or of a parameter, or if
/// there is no CUDA in this program and it is asked for; `penstock::cuda_error`s.
[[nodiscard]] results run_experiment(
    const options& chosen, const digit_data& data,
    const row_done& done = [](const results&, const mode_result&) {});

}  // namespace mlp
