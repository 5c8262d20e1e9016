// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "support/environment.hpp"

/// How many seeds the double's random policy gets: a handful, the same in every run, or as many as
/// PENSTOCK_SEEDS says.
inline std::uint64_t seed_count() { return test::number_in_environment("PENSTOCK_SEEDS", 8); }
