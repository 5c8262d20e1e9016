// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>

#include <penstock/ranks/world.hpp>

#include "host_ranks.hpp"
#include "rank_options.hpp"

/// What the programs for ranks have in common, whatever connects these.
namespace mlp {

/// Whether this build can do what was chosen; else says why, on standard error, as the program
/// `who`.
[[nodiscard]] bool can_run(const rank_options& chosen, const std::string& who);

/// All that a rank does once it has the others: trains, compares what all have learnt, and says on
/// rank 0 what was found, on standard output. Throws what `train_in_parallel` and `train_on_cuda`
/// do.
void run(const rank_options& chosen, const penstock::world& w, host_ranks& ranks);

}  // namespace mlp
