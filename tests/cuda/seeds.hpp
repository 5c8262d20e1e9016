// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "support/environment.hpp"

/// Returns the number of seeds for the double's random policy: a few that are equal in every run,
/// or the number in PENSTOCK_SEEDS.
inline std::uint64_t seed_count() { return test::number_in_environment("PENSTOCK_SEEDS", 8); }
