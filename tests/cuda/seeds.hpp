// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "support/environment.hpp"

/// Returns the number of seeds for the random policy of the fake CUDA runtime: PENSTOCK_SEEDS if it
/// is set, or a small fixed number.
inline std::uint64_t seed_count() { return test::number_in_environment("PENSTOCK_SEEDS", 8); }
