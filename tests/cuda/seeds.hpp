// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "fake_cuda/fake_cuda.hpp"
#include "support/environment.hpp"

/// Returns the number of seeds for the random policy of the fake CUDA runtime: PENSTOCK_SEEDS if it
/// is set, or a small fixed number.
inline std::uint64_t seed_count() { return test::number_in_environment("PENSTOCK_SEEDS", 8); }

/// Returns the policy for a seed. Four consecutive seeds give one late policy, one early policy,
/// and two random policies.
inline fake_cuda::policy policy_of(std::uint64_t seed) {
  return seed % 4 == 0   ? fake_cuda::policy::late
         : seed % 4 == 1 ? fake_cuda::policy::early
                         : fake_cuda::policy::random;
}
