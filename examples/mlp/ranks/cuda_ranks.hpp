// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <optional>
#include <string>

#include <penstock/ranks/world.hpp>

#include "digit_source.hpp"
#include "host_ranks.hpp"
#include "parallel_result.hpp"
#include "rank_options.hpp"

namespace mlp {

/// Why `train_on_cuda` can't be called; nothing where the program was built with CUDA and NCCL.
[[nodiscard]] std::optional<std::string> why_no_cuda_ranks();

/// Trains on this rank's GPU, whose number is `w.local_rank`; `ranks` pass NCCL's id on, and what
/// the host has. Warns on standard error, by rank 0, of ranks that have been given one GPU. Throws
/// what `train_in_parallel` does, `nccl_error`, and `cuda_error`.
[[nodiscard]] parallel_result train_on_cuda(const digit_source& digits, const penstock::world& w,
                                            host_ranks& ranks, const rank_options& chosen);

}  // namespace mlp
